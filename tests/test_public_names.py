"""The names of public modules: what `dir()` shows, what `__all__` says, and what a type checker sees are the same."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import sparktxn

ROOT: Final = Path(__file__).parents[1]

MODULES: Final = (
    "pyspark_txnlog",
    "sparktxn",
    "sparktxn.admin",
    "sparktxn.aio",
    "sparktxn.compat",
    "sparktxn.errors",
    "sparktxn.store.storemetrics",
    "sparktxn.halfmessage",
    "sparktxn.halfmessage.rocketmq5",
    "sparktxn.maintenance",
    "sparktxn.metrics",
    "sparktxn.store",
    "sparktxn.tables",
    "sparktxn.testing.clocks",
    "sparktxn.testing.faultproxy",
    "sparktxn.testing.faultystore",
    "sparktxn.testing.objectstore_tests",
    "sparktxn.transfer",
)
"""Modules that pages and the reference import from."""

FOR_ENGINES: Final = {"check_columns", "did_you_mean", "merged_files", "output_schema", "ranges_within", "read_object",
                      "rows_at_most", "segment_values", "whole_files", "INTERNAL_TOPICS"}  # fmt: skip
"""What only an engine has a use for: `sparktxn.store` has it, and `sparktxn.errors`."""


@pytest.fixture(scope="module", params=MODULES)
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_dir_has_the_public_names_and_nothing_else(module: ModuleType) -> None:
    for name in module.__all__:
        getattr(module, name)
    assert dir(module) == sorted(module.__all__)
    assert [name for name in dir(module) if name.startswith("_")] in ([], ["__version__"])


def test_the_root_has_what_programs_use() -> None:
    assert FOR_ENGINES.isdisjoint(dir(sparktxn))
    assert {"Producer", "Consumer", "Store", "read_arrow", "to_pandas", "to_polars", "to_duckdb", "open_table"} <= {
        *dir(sparktxn)
    }


def test_each_public_function_and_class_says_what_it_does_and_takes(module: ModuleType) -> None:
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isroutine(value) and not inspect.isclass(value):
            continue
        assert inspect.getdoc(value), name
        if inspect.isfunction(value):
            parameters = inspect.signature(value).parameters
            assert [each for each in parameters.values() if each.annotation is inspect.Parameter.empty] == [], name


def test_tables_take_the_same_arguments_by_name() -> None:
    """An editor shows them, and a misspelt one is an error of the function that was called."""
    wanted = dict(inspect.signature(sparktxn.read_arrow).parameters)
    for function in (sparktxn.to_pandas, sparktxn.to_polars, sparktxn.to_duckdb):
        found = dict(inspect.signature(function).parameters)
        found.pop("connection", None)
        assert found == wanted
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\) got an unexpected keyword argument 'colums'"):
            function("shop", "orders", colums=["a"])  # type: ignore[call-arg]


def test_a_type_checker_sees_each_name_and_no_other(tmp_path: Path) -> None:
    lines = ["import " + ", ".join(MODULES)]
    for name in MODULES:
        lines += [f"reveal_type({name}.{each})" for each in importlib.import_module(name).__all__]
    unknown = [f"{name}.no_such_name" for name in MODULES]
    program = tmp_path / "program.py"
    program.write_text("\n".join([*lines, *unknown, "sparktxn.to_pandas('shop', 'orders', colums=['a'])", ""]))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [re.match(r".*?:(\d+): (note|error): (.*)", line) for line in done.stdout.splitlines()]
    notes = {int(each[1]): each[3] for each in found if each is not None and each[2] == "note"}
    errors = {int(each[1]): each[3] for each in found if each is not None and each[2] == "error"}
    untyped = [lines[number - 1] for number, text in notes.items() if text == 'Revealed type is "Any"']
    assert untyped == []
    assert [number for number in range(2, len(lines) + 1) if not notes.get(number, "").startswith("Revealed")] == []
    assert [*errors] == [len(lines) + 1 + number for number in range(len(unknown) + 1)], done.stdout + done.stderr
    assert all("has no attribute" in errors[len(lines) + 1 + number] for number in range(len(unknown)))
    assert 'Unexpected keyword argument "colums"' in errors[len(lines) + 1 + len(unknown)]
