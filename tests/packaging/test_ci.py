"""What CI runs: the workflow and the scripts agree with pyproject.toml. The forge itself cannot be tried here."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]


def supported() -> list[str]:
    """The versions of Python in `requires-python`."""
    bounds = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"])
    assert bounds is not None
    return [f"3.{minor}" for minor in range(int(bounds[1]), int(bounds[2]))]


def test_the_workflow_tests_each_supported_python() -> None:
    classifiers = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert JOBS["run"]["strategy"]["matrix"]["python"] == supported() == classifiers


def test_the_environment_is_made_with_each_supported_python() -> None:
    script = (ROOT / ".ci" / "ensure-venv").read_text()
    assert re.findall(r"python(3\.\d+)", script) == supported()[::-1], "the newest one first"


@pytest.mark.parametrize(("job", "script"), [("run", ".ci/run"), ("nightly", ".ci/nightly")])
def test_each_job_runs_its_script_and_ends(job: str, script: str) -> None:
    assert [step["run"] for step in JOBS[job]["steps"] if "run" in step] == [script]
    assert os.access(ROOT / script, os.X_OK)
    assert 0 < JOBS[job]["timeout-minutes"] <= 360


def test_pushes_run_the_tests_and_the_schedule_runs_the_night() -> None:
    events = WORKFLOW[True]  # YAML 1.1 reads the key `on` so
    assert {"push", "pull_request", "schedule"} == set(events)
    assert JOBS["run"]["if"] == "github.event_name != 'schedule'"
    assert JOBS["nightly"]["if"] == "github.event_name == 'schedule'"


def test_only_pinned_official_actions_are_used() -> None:
    actions = [step["uses"] for job in JOBS.values() for step in job["steps"] if "uses" in step]
    assert actions
    assert [action for action in actions if not re.fullmatch(r"actions/[a-z-]+@v\d+", action)] == []
