"""What a night has found: a line a group, the failing tests with what replays each, and the slowest tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from tests.nightly.groups import Group
from tests.nightly.runner import GREEN, HASH_VARIABLE, result_of
from tests.seeds import SEED_VARIABLE

__all__ = ["summary"]

SLOWEST: Final = 10
FAILED: Final = ("failure", "error")


class Case(NamedTuple):
    """A test that was run; `outcome` is ``passed`` or the name that JUnit's format has for another end."""

    test: str
    seconds: float
    outcome: str


def summary(groups: Sequence[Group], seed: int, night: Path) -> str:
    """Return the summary of all that was run in the night so far."""
    lines = [f"{'group':<10}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}  verdict"]
    failing: list[str] = []
    cases: list[Case] = []
    for group in groups:
        result = result_of(group, night)
        if result is None:
            lines.append(f"{group.name:<10}{'not run':>42}")
            continue
        ran = list(_cases(night / group.name / "junit.xml"))
        cases += ran
        outcomes = Counter("failed" if case.outcome in FAILED else case.outcome for case in ran)
        counts = "".join(f"{outcomes[name] if ran else '-':>8}" for name in ("passed", "failed", "skipped"))
        lines.append(f"{group.name:<10}{counts}{result.seconds:>9.0f}  {result.verdict}")
        if result.verdict != GREEN:
            failing += _replays(group, seed, night, [case.test for case in ran if case.outcome in FAILED])
    slowest = sorted(cases, key=lambda case: -case.seconds)[:SLOWEST]
    lines += ["", "slowest:", *(f"{case.seconds:>8.1f} s  {case.test}" for case in slowest)] if slowest else []
    lines += ["", "to replay:", *failing] if failing else []
    return "\n".join([*lines, "", f"seed {seed}; the output of each group is in {night}"])


def _replays(group: Group, seed: int, night: Path, tests: list[str]) -> Iterator[str]:
    """Yield the command for each failing test, or for the whole group if no test has said what failed."""
    yield f"  {group.name}: {night / group.name / 'log.txt'}"
    variables = f"{SEED_VARIABLE}={seed} {HASH_VARIABLE}={seed % (1 << 32)}"
    for test in dict.fromkeys(tests):
        yield f"""    {variables} make test ARGS="-m '' --hypothesis-seed={seed} '{test}'\""""
    if not tests:
        yield f"    make nightly ARGS='--seed {seed} --only {group.name}'"


def _cases(junit: Path) -> Iterator[Case]:
    """Yield the tests of a group; none if it runs no pytest, or was killed before it could write them."""
    try:
        found = ElementTree.parse(junit)
    except (OSError, ElementTree.ParseError):
        return
    for case in found.iter("testcase"):
        if not case.get("name"):
            continue  # pytest's row for a test that was interrupted
        outcome = next((part.tag for part in case if part.tag in (*FAILED, "skipped")), "passed")
        yield Case(_test_id(case), float(case.get("time", 0)), outcome)


def _test_id(case: ElementTree.Element) -> str:
    """Return what pytest calls a test: its file, its classes and its name."""
    file, name = case.get("file"), case.get("name", "")
    if file is None:
        return name
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".").split(".")
    return "::".join([file, *filter(None, classes), name])
