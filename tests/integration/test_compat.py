"""`sparktxn.compat` in processes of its own: with a package called confluent_kafka that stands there, and without.

The real package and frameworks run in tests/interop/test_compat.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktxn._engine.objectstore.uri import broker_addresses, parse_uri
from sparktxn.compat.clients import STORES_VARIABLE, Stores
from sparktxn.errors import ConfigurationError
from tests.forkserver import ForkServer

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

broker = {"bootstrap.servers": "localhost:9092"}
admin = AdminClient(broker)
assert admin.list_topics().topics == {}
admin.create_topics([NewTopic("t", 1, config={"cleanup.policy": "compact"})])["t"].result()
producer = Producer(broker, client_id="p")
producer.produce("t", b"x", b"key")
assert producer.flush() == 0
consumer = Consumer(bootstrap_servers="localhost:9092", group_id="g", auto_offset_reset="earliest")
consumer.subscribe(["t"])
print(sys.argv[1:], __name__, consumer.poll(10).value(), confluent_kafka.version())
consumer.close()
"""

# What the package's __init__ does: names of its compiled module and of its models.
FAKE_PACKAGE = {
    "__init__.py": "from .cimpl import *\nfrom .cimpl import Consumer, Producer, version\nfrom ._model import Node\n",
    "cimpl.py": "raise ImportError('the compiled module of the package must not be loaded')\n",
    "_model.py": "raise ImportError('the models of the package must not be loaded')\n",
    "admin.py": "raise ImportError('the administration of the package must not be loaded')\n",
    "serialization.py": "from confluent_kafka.cimpl import KafkaException\nNAME = KafkaException.__module__\n",
}


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs what Python runs, with the package confluent_kafka that is in the folder `path`, or with none."""
    with ForkServer("sparktxn", "sparktxn.admin", "sparktxn.aio") as server:

        def run_one(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*server.python, *arguments],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                env={**environment(), "PYTHONPATH": str(path or "")},
            )

        yield run_one


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != STORES_VARIABLE}


def written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    written(tmp_path / "site" / "confluent_kafka", FAKE_PACKAGE)
    return tmp_path / "site"


@pytest.mark.parametrize("has_package", [False, True])
def test_a_program_runs_unchanged(run: Run, program: Path, package: Path, tmp_path: Path, has_package: bool) -> None:
    path = package if has_package else None
    arguments = ["-m", "sparktxn.compat", "--stores", str(tmp_path / "log"), str(program), "a", "-b"]
    found = run(*arguments, path=path)
    assert found.stdout == "['a', '-b'] __main__ b'x' 2.16.0\n", found.stderr


def test_the_environment_names_the_store_and_a_module_runs(program: Path, tmp_path: Path) -> None:
    stores = {STORES_VARIABLE: f"localhost:9092={tmp_path / 'log'},other:9092=/nowhere"}
    found = subprocess.run(
        [sys.executable, "-m", "sparktxn.compat", "-m", "program", "c"],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **stores},
    )  # fmt: skip
    assert found.stdout == "['c'] __main__ b'x' 2.16.0\n", found.stderr


def test_the_packages_own_modules_are_loaded_over_our_clients(run: Run, package: Path) -> None:
    code = "import sparktxn.compat as c; c.install(); from confluent_kafka.serialization import NAME; print(NAME)"
    found = run("-c", code, path=package)
    assert found.stdout == "sparktxn.errors\n", found.stderr


def test_what_needs_the_package_says_so_without_it(run: Run) -> None:
    code = "import sparktxn.compat as c; c.install(); import confluent_kafka.error; import confluent_kafka.avro"
    found = run("-c", code)
    assert found.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: No module named 'confluent_kafka.avro': it is a part of the package itself: "
        "pip install confluent-kafka"
    )


@pytest.mark.parametrize("module", ["confluent_kafka.aio", "confluent_kafka.experimental.aio"])
def test_the_clients_for_asyncio_are_there_without_the_package(run: Run, tmp_path: Path, module: str) -> None:
    program = ROOT / "tests" / "interop" / "programs" / "aio_round_trip.py"
    (tmp_path / "program.py").write_text(program.read_text().replace("confluent_kafka.aio", module))
    found = run("-m", "sparktxn.compat", "--stores", str(tmp_path / "log"), str(tmp_path / "program.py"))
    assert found.stdout == "2 21 ['committed']\nTrue\n", found.stderr


def test_a_package_that_is_imported_already_is_refused(run: Run, package: Path) -> None:
    (package / "confluent_kafka" / "__init__.py").write_text("")
    found = run("-c", "import confluent_kafka, sparktxn.compat as c; c.install()", path=package)
    assert "call sparktxn.compat.install() before its first import" in found.stderr.splitlines()[-1]


def test_install_can_be_called_twice(run: Run) -> None:
    code = (
        "import sys, sparktxn.compat as c\n"
        "c.install('/a'); count = len(sys.meta_path); c.install({'b:1': '/b'}); assert len(sys.meta_path) == count\n"
        "import confluent_kafka.admin\n"
        "print(confluent_kafka.admin.AdminClient({'bootstrap.servers': 'b:1'}))"
    )
    found = run("-c", code)
    assert found.stdout == "AdminClient('/b')\n", found.stderr


def test_a_broker_without_a_store_is_an_error_that_says_what_to_set(run: Run, program: Path) -> None:
    found = run("-m", "sparktxn.compat", str(program))
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == (
        "sparktxn.errors.ConfigurationError: bootstrap.servers is 'localhost:9092', and no store is known for it: set "
        "SPARKTXN_STORES=localhost:9092=/data/log, or run python -m sparktxn.compat --stores /data/log"
    )


@pytest.mark.parametrize(
    "arguments", [[], ["-h"], ["-m"], ["--stores"], ["--stores", "/log"], ["--store=/log", "x.py"]]
)
def test_a_wrong_command_shows_the_usage(run: Run, arguments: list[str]) -> None:
    found = run("-m", "sparktxn.compat", *arguments)
    assert found.returncode == 1
    assert found.stderr.startswith("usage: python -m sparktxn.compat [--stores STORES] program.py")


def test_a_missing_program_and_wrong_stores_are_named(run: Run) -> None:
    assert "there is no program 'none.py'" in run("-m", "sparktxn.compat", "none.py").stderr
    wrong = run("-m", "sparktxn.compat", "--stores", "localhost:9092", "none.py").stderr
    assert wrong.startswith("error: stores has 'localhost:9092': expected host:port=/data/log")


@pytest.mark.parametrize(
    ("stores", "address", "store"),
    [
        ("/log", "localhost:9092", "/log"),
        ("/log", "s3://bucket/a", "s3://bucket/a"),
        ("/log", "/other", "/other"),
        ("a:1=/a, b:2=/b", "b:2", "/b"),
        ("a:1=/a,b:2=/b", "a:1,c:3", "/a"),
        ("a:1=/a,/rest", "c:3", "/rest"),
        ("a:1=s3://bucket/x=1", "PLAINTEXT://b:2,a:1", "s3://bucket/x=1"),
        ({"a:1,b:2": "/both"}, "a:1,b:2", "/both"),
    ],
)
def test_the_store_of_an_address(stores: str | dict[str, str], address: str, store: str) -> None:
    assert Stores(stores).of(address) == store


@pytest.mark.parametrize(
    ("stores", "address", "error"),
    [
        ("a:1=/a,b:2=/b", "a:1,b:2", "these brokers have different stores"),
        ("a:1=/a", "c:3", "no store is known for it"),
        ("/a,/b", "", "stores has '/b': expected"),
        ("a:1=", "", "stores has a:1=: expected"),
        ({"/a": "/b"}, "", "stores has /a=/b: expected"),
    ],
)
def test_wrong_stores_are_refused(stores: str | dict[str, str], address: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        Stores(stores).of(address)


@pytest.mark.parametrize("address", ["localhost:9092", "kafka-1:9092,kafka-2:9092", "SSL://host:1", "[::1]:9092"])
def test_a_brokers_address_is_no_stores(address: str) -> None:
    assert broker_addresses(address)
    with pytest.raises(ConfigurationError, match="is the address of a broker: there are none here; write"):
        parse_uri(address)


@pytest.mark.parametrize("address", ["/data/log", "./log", "s3://bucket/a", "memory://x", "file:/a:1/b", "log"])
def test_a_stores_address_is_no_brokers(address: str) -> None:
    assert broker_addresses(address) == []
