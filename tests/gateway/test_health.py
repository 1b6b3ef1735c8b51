"""What a gateway says of itself, and how it ends: what was sent is answered, and a second signal is obeyed at once."""

from __future__ import annotations

import shutil
import signal
import socket
import struct
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from prometheus_client.parser import text_string_to_metric_families

from sparktxn import Producer
from sparktxn._programs.gateway.requestfigures import FAMILIES
from tests.gateway.processes import gateway, new_store
from tests.gateway.wire import WAIT_S, Refused, Wire


def page(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def figures(address: str) -> dict[tuple[str, str], float]:
    """The figures by name, and by the value of their first label."""
    _, text = page(f"{address}/metrics")
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def test_a_gateway_shows_its_figures_and_whether_it_serves(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with gateway(store, "--http", "127.0.0.1:0") as found:
        pages = found.row["http"]
        assert page(f"{pages}/healthz") == (200, "ok\n")
        assert page(f"{pages}/other")[0] == 404
        before = figures(pages)
        assert before["txnlog_gateway_connections", ""] == 0
        with Wire(found.address) as wire:
            for _ in range(3):
                wire.ask("list_groups", 5)
            wire.send_frame(b"no request")
            assert wire.is_closed()
        with Wire(found.address) as wire, Producer({"bootstrap.servers": store}) as producer:
            wire.ask("api_versions", 0)
            for number in range(3):
                producer.produce("orders", str(number), partition=0)
                producer.flush()
            seen = figures(pages)
            assert seen["txnlog_gateway_connections", ""] == 1
        assert seen["txnlog_gateway_request_seconds_count", "list_groups"] == 3
        assert seen["txnlog_gateway_request_seconds_sum", "list_groups"] > 0
        assert seen["txnlog_gateway_request_bytes_total", "list_groups"] > 3 * 8
        assert seen["txnlog_gateway_answer_bytes_total", "list_groups"] > 3 * 8
        assert seen["txnlog_gateway_refused_total", "malformed"] == 1
        assert seen["txnlog_gateway_log_lag_entries", ""] >= 1
        assert seen["txnlog_gateway_log_entry", ""] > before["txnlog_gateway_log_entry", ""]
        assert figures(pages)["txnlog_gateway_log_lag_entries", ""] == 0
        assert seen["txnlog_gateway_open_transactions", ""] == 0
        assert seen["txnlog_gateway_request_memory_bytes", ""] == 0
        assert seen["txnlog_gateway_transaction_memory_bytes", ""] == 0
        assert any(name.startswith("txnlog_client_requests") for name, _ in seen), "what each process counts"
        names = {name.removesuffix("_count").removesuffix("_sum") for name, _ in seen}
        assert FAMILIES.keys() <= names
        shutil.rmtree(store)
        Path(store).write_text("no folder: nothing in it can be read")
        code, text = page(f"{pages}/healthz")
        assert code == 503, text
        assert text.startswith("the store cannot be read: "), "whole, whatever was answered before"
        assert "txnlog_gateway_log_entry" not in {name for name, _ in figures(pages)}


def test_an_address_of_the_pages_that_is_taken_is_an_error_before_it_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        with (
            pytest.raises(AssertionError, match=r"Address already in use.* --http"),
            gateway(new_store(tmp_path), "--http", address),
        ):
            pass


def waiting_fetch(wire: Wire, wait_ms: int = 60_000) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    wire.send(
        "fetch",
        4,
        replica_id=-1,
        max_wait=wait_ms,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=1,
        topics=[{"topic": "orders", "partitions": [partition]}],
    )


def test_a_signal_has_it_answer_what_was_sent_and_take_nothing_new(tmp_path: Path) -> None:
    with gateway(new_store(tmp_path), "--http", "127.0.0.1:0", own_python=True) as found:
        with Wire(found.address) as wire, Wire(found.address) as idle:
            assert idle.ask("list_groups", 5).error_code is ErrorCode.none
            waiting_fetch(wire)
            time.sleep(0.5)
            began_s = time.monotonic()
            found.process.send_signal(signal.SIGTERM)
            (topic,) = wire.answer("fetch", 4).responses
            assert [part.error_code for part in topic.partitions] == [ErrorCode.none]
            assert idle.is_closed()
            assert wire.is_closed()
            assert time.monotonic() - began_s < 30, "half of what the fetch may wait"
        _, err = found.process.communicate(timeout=WAIT_S)
        assert found.process.returncode == 0
        assert "Traceback" not in err.decode()
        with pytest.raises(ConnectionRefusedError):
            Wire(found.address)


def test_what_is_sent_together_with_the_signal_is_answered(tmp_path: Path) -> None:
    with gateway(new_store(tmp_path), own_python=True) as found, Wire(found.address) as wire:
        wire.ask("list_groups", 5)
        for _ in range(10):
            wire.send("list_groups", 5)
        found.process.send_signal(signal.SIGTERM)
        answered = 0
        wire._asked -= 10
        for _ in range(10):
            wire._asked += 1
            try:
                answered += wire.answer("list_groups", 5).error_code is ErrorCode.none
            except Refused:
                break
        assert answered == 10


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with gateway(new_store(tmp_path), own_python=True) as found, Wire(found.address) as wire:
        wire.ask("list_groups", 5)
        # Answers that are not read keep it waiting.
        found.process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(WAIT_S) in (0, -signal.SIGTERM)


def test_a_client_that_leaves_without_its_answers_is_no_error(tmp_path: Path) -> None:
    with gateway(new_store(tmp_path)) as found:
        for _ in range(5):
            with Wire(found.address) as wire:
                for _ in range(10):
                    wire.send("list_groups", 5)
                reset = struct.pack("ii", 1, 0)
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        with Wire(found.address) as wire:
            assert wire.ask("list_groups", 5).error_code is ErrorCode.none
        assert found.end() == (0, "")
