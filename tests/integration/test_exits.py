"""A program that ends, whatever its threads do: its own exit code, and nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sparktxn import KafkaException, Store
from sparktxn._foundation.process import background
from sparktxn.errors import ErrorCode
from tests.integration.exits import ENDINGS, RECORDS, STATES
from tests.seeds import examples, seed_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_programs_end_with_their_own_exit_code_whatever_their_threads_do(tmp_path: Path) -> None:
    """Threads sleep, compute in pyarrow, wait for a silent store or server; CPython would abort in the second case."""
    count, seed = examples(daily=2 * len(STATES), nightly=1_000), seed_of("exits")
    patience_s = examples(daily=10, nightly=75) / 100
    program = [sys.executable, "-m", "tests.integration.exits", *map(str, (tmp_path, count, seed, patience_s))]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60 + 5 * count, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    children = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(children) == count
    wrong = [child for child in children if child[2] != ENDINGS[child[1]]]
    assert not wrong
    slow = [child for child in children if child[3] > 60]
    assert not slow
    threads = [child for child in children if "Exception in thread" in child[4] or "Exception ignored" in child[4]]
    assert not threads
    for state, _, _, _, _, uri in children:
        if state == "fold":
            with Store.open(uri) as store:
                assert store.view(["t"]).partitions["t", 0].log_end_offset == RECORDS


_AFTER_MAIN = """
import sys, threading
from sparktxn import Producer

def work():
    threading.main_thread().join()
    producer = Producer({"bootstrap.servers": sys.argv[1], "store.fsync": False})
    producer.produce("t", b"x")
    assert producer.flush(300) == 0

threading.Thread(target=work).start()
"""


def test_a_thread_works_on_after_the_main_one_has_ended(tmp_path: Path) -> None:
    """Python refuses some imports from then on: what a client needs is imported with it."""
    uri = str(tmp_path / "store")
    with Store.open(uri, create=True) as store:
        store.create_topic("t")
    done = subprocess.run([sys.executable, "-c", _AFTER_MAIN, uri], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with Store.open(uri) as store:
        assert store.view(["t"]).partitions["t", 0].log_end_offset == 1


def test_the_exit_is_short() -> None:
    assert background.EXIT_S + background._REST_S < 1


def test_no_thread_is_started_once_the_exit_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_is_exiting", True)
    workers = background.ThreadBackground("late", 1)
    with pytest.raises(KafkaException, match="the interpreter ends") as refused:
        workers.repeat(lambda: None)
    assert refused.value.error.code() == ErrorCode.LOCAL_CRIT_SYS_RESOURCE
    assert workers.submit(threading.current_thread).result(0) is threading.current_thread()
