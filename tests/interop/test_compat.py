"""confluent-kafka's own Python modules and stream frameworks run on a store, unchanged (`make interop`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop.confluentnames import TABLE
from tests.interop.peers import run

pytestmark = pytest.mark.interop

PROGRAMS = Path(__file__).parent / "programs"


def program(python: Path, name: str, store: Path, *arguments: str) -> list[str]:
    command = ["-m", "sparktxn.compat", "--stores", f"localhost:9092={store}", str(PROGRAMS / name), *arguments]
    return run(python, command).splitlines()


def test_the_table_of_names_is_the_real_packages(confluent: Path) -> None:
    code = "import json; from tests.interop.confluentnames import table; print(json.dumps(table()))"
    found, kept = json.loads(run(confluent, ["-c", code])), json.loads(TABLE.read_text())
    versions = [table.pop("version").rpartition(".")[0] for table in (found, kept)]
    assert versions[0] == versions[1], "a later version of the package may have other names"
    assert found == kept


def test_the_replaced_module_has_every_public_name_of_the_compiled_one(confluent: Path) -> None:
    names = "print(sorted(n for n in vars(cimpl) if not n.startswith('__')))"
    there = run(confluent, ["-c", f"from confluent_kafka import cimpl; {names}"])
    here = run(
        confluent, ["-c", f"import sparktxn.compat as c; c.install(); from confluent_kafka import cimpl; {names}"]
    )
    assert set(json.loads(there.replace("'", '"'))) <= set(json.loads(here.replace("'", '"')))


def test_the_asyncio_clients_run(confluent: Path, tmp_path: Path) -> None:
    assert program(confluent, "aio_round_trip.py", tmp_path / "log") == ["2 21 ['committed']", "True"]


def test_serializing_clients_run_with_the_mock_of_the_schema_registry(confluent: Path, tmp_path: Path) -> None:
    users = "[('k0', 'user-0', 0), ('k1', 'user-1', 1), ('k2', 'user-2', 2)]"
    assert program(confluent, "serializing_avro.py", tmp_path / "log") == [users, users]


def test_bytewax_runs(confluent: Path, tmp_path: Path) -> None:
    assert program(confluent, "bytewax_upper.py", tmp_path / "log") == ["True 20"]


def test_arroyo_runs(confluent: Path, tmp_path: Path) -> None:
    assert program(confluent, "arroyo_forward.py", tmp_path / "log") == ["20 20"]


def test_quix_streams_counts_exactly_once_over_a_restart(quix: Path, tmp_path: Path) -> None:
    """The second run has an empty folder: it restores the counts from the changelog topic."""
    store = tmp_path / "log"
    assert program(quix, "quix_counts.py", store, str(tmp_path), "1")[-1] == (
        "run 1: 30 results, [('k0', 10), ('k1', 10), ('k2', 10)]"
    )
    assert program(quix, "quix_counts.py", store, str(tmp_path), "2")[-1] == (
        "run 2: 60 results, [('k0', 20), ('k1', 20), ('k2', 20)]"
    )
