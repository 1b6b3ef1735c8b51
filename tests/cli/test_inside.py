"""`txnlog log`, `dump` and `files`: what the store is made of."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparktxn import Producer
from sparktxn._engine.format import names
from sparktxn.store import Store
from tests.cli.shop import half_messages, open_transaction, store
from tests.cli.terminal import ok, txnlog


@pytest.fixture(autouse=True)
def records() -> None:
    ok("topics", "create", "orders", "-p", "2", "--set", "append.inline.bytes=0")
    ok("produce", "-t", "orders", "-p", "0", "--transactional-id", "shop-1", stdin=b"0\n1\n")
    ok("consume", "-t", "orders", "-G", "accounts", "-e")


def objects(folder: Path, ending: str) -> list[str]:
    root = folder / "store"
    return sorted(str(path.relative_to(root)) for path in root.rglob(f"*{ending}"))


class TestLog:
    def test_each_entry_says_what_it_did(self) -> None:
        rows = ok("log", "--json").json
        assert [row["entry"] for row in rows] == list(range(1, len(rows) + 1))
        assert rows[2]["transactions"][0]["transactional_id"] == "shop-1"
        assert rows[2]["records"] == [{"topic": "orders", "record_count": 2}]
        assert all(row["timestamp_ms"] > 0 for row in rows)
        lines = ok("log").lines
        assert lines[3].split()[2:] == ["append,", "end_txn", "commit", "shop-1:0:1", "orders=2", "-"]
        assert lines[-1].split()[-1] == "accounts"

    def test_it_is_limited_to_what_is_asked_for(self) -> None:
        assert [row["entry"] for row in ok("log", "--from", "2", "--to", "3", "--json").json] == [2, 3]
        newest = [row["entry"] for row in ok("log", "--json").json][-1]
        assert [row["entry"] for row in ok("log", "-n", "2", "--json").json] == [newest - 1, newest]
        assert [row["entry"] for row in ok("log", "-n", "2", "--to", "3", "--json").json] == [2, 3]
        done = txnlog("log", "--to", "9999")
        assert (done.code, done.text) == (2, "")
        assert "the log ends at entry" in done.err


class TestDump:
    def test_an_entry_shows_its_commands(self, folder: Path) -> None:
        (row,) = ok("dump", "3", "--json").json
        assert (row["kind"], row["object"], row["entry"]) == ("entry", names.entry(3), 3)
        assert [command["type"] for command in row["commands"]] == ["append", "end_txn"]
        (following,) = ok("dump", str(folder / "store" / names.entry(4)), "--json").json
        assert following["previous"] == row["checksum"]
        assert '\n  "kind": "entry",\n' in ok("dump", names.entry(3)).text

    def test_an_entry_shows_the_records_that_it_carries(self) -> None:
        ok("topics", "create", "notes")
        ok("produce", "-t", "notes", "-k", "k", stdin=b"\xff\n[red]\n")
        newest = ok("log", "--json").json[-1]["entry"]
        (row,) = ok("dump", str(newest), "--json").json
        (append,) = row["commands"]
        assert append["segment"].endswith(".inline")
        records = append["data"]["records"]
        assert [record.get("value", record.get("value_base64")) for record in records] == ["/w==", "[red]"]
        (row,) = ok("dump", str(newest), "-n", "0", "--json").json
        assert row["commands"][0]["data"] == {"size_bytes": append["bytes"], "records": []}
        (file,) = ok("files", "notes", "--json").json
        assert (file["base_offset"], file["record_count"], file["is_whole"]) == (0, 2, False)
        assert file["path"].endswith(names.entry(newest))
        assert ok("files", "notes", "--paths").text == ""

    def test_a_segment_shows_its_records(self, folder: Path) -> None:
        ok("produce", "-t", "orders", "-p", "1", "-k", "k", stdin=b"\xff\n[red]\n")
        (name,) = [name for name in objects(folder, ".parquet") if "kafka_partition=1" in name]
        (row,) = ok("dump", name, "--json").json
        assert (row["kind"], row["topic"], row["record_count"]) == ("segment", "orders", 2)
        assert [record.get("value", record.get("value_base64")) for record in row["records"]] == ["/w==", "[red]"]
        assert ok("dump", name, "-n", "0", "--json").json[0]["records"] == []
        assert "[red]" in ok("dump", name).text

    def test_a_segment_says_whether_its_records_are_committed(self, folder: Path) -> None:
        before = objects(folder, ".parquet")
        with open_transaction("slow", partition=1) as producer:
            (name,) = {*objects(folder, ".parquet")} - {*before}
            (row,) = ok("dump", name, "--json").json
            assert (row["states"], row["record_count"]) == (["open"], 1)
            assert [file["record_count"] for file in ok("files", "orders", "--json").json] == [2]
            producer.abort_transaction()
        assert ok("dump", name, "--json").json[0]["states"] == ["aborted"]
        assert ok("dump", before[0], "--json").json[0]["states"] == ["committed"]
        assert ok("rewrite", "orders", "--apply").code == 0
        assert [file["record_count"] for file in ok("files", "orders", "--json").json] == [2]

    def test_files_behind_an_open_transaction(self) -> None:
        with open_transaction("slow"):
            ok("produce", "-t", "orders", "-p", "0", stdin=b"2\n")
            found = {order: ok("files", "orders", "--order", order, "--json").json for order in ("commit", "offset")}
        assert [file["base_offset"] for file in found["commit"]] == [0, 4]
        assert [file["base_offset"] for file in found["offset"]] == [0]

    def test_a_segment_of_a_deleted_topic_is_shown_as_it_is(self, folder: Path) -> None:
        (name,) = objects(folder, ".parquet")
        ok("topics", "delete", "orders", "--apply")
        (row,) = ok("dump", name, "--json").json
        assert (row["topic"], row["record_count"]) == (None, 2)

    def test_sealed_files_and_checkpoints_are_decoded(self, folder: Path) -> None:
        settings = {"bootstrap.servers": store(), "transactional.id": "x", "checkpoint.entries": 1}
        settings |= {"checkpoint.seal.segments": 2}
        with Producer(settings) as producer:
            producer.init_transactions()
            for number in range(6):
                producer.begin_transaction()
                producer.produce("orders", str(number), partition=0)
                producer.flush()
                if number % 2:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        # The producer's checkpoints are written alongside: on a busy machine the last one may not be there yet.
        with Store.open(store(), options={"checkpoint.seal.segments": 2}) as opened:
            opened.log.checkpoint()
        (head,) = ok("dump", "checkpoint", "--json").json
        assert head["kind"] == "checkpoint"
        part = next(iter(head["parts"].values()))[0]
        assert ok("dump", part, "--json").json[0]["kind"] == "document"
        for ending, kind in (
            ("manifest", "manifest"),
            (".txnindex", "transaction_index"),
            (".snapshot", "producer_snapshot"),
        ):
            (row,) = ok("dump", objects(folder, ending)[-1], "--json").json
            assert row["kind"] == kind
            assert row["rows"]

    def test_an_entry_shows_the_half_message_that_it_carries(self) -> None:
        ok("topics", "create", "paid")
        (transaction_id,) = half_messages("carried", topic="paid")
        with Store.open(store()) as opened:
            carrying = names.entry(opened.log.entry)
        entries = ok("dump", carrying, "--json").json
        commands = [command for entry in entries for command in entry.get("commands", ())]
        (half,) = [command for command in commands if command.get("transaction_id") == transaction_id]
        ((segment, carried),) = half["data"].items()
        assert segment == half["segments"][0][3]
        assert [row["value"] for row in carried["records"]] == ["carried"]

    def test_the_stores_own_object_is_decoded(self) -> None:
        (row,) = ok("dump", "_txnlog.json", "--json").json
        assert (row["kind"], row["format"]) == ("store", 1)

    @pytest.mark.parametrize(
        ("name", "code", "expected"),
        [
            ("9999", 2, "has no object of the name"),
            ("../secret", 2, "is not a name inside the store"),
            ("/etc/passwd", 2, "is not a name inside the store"),
            ("checkpoint", 2, "the store has no checkpoint yet"),
            ("odd", 2, "is none that this command decodes"),
            ("topics/orders-1/kafka_partition=0/odd", 2, "is none that this command decodes"),
        ],
    )
    def test_what_cannot_be_decoded_is_an_error(self, folder: Path, name: str, code: int, expected: str) -> None:
        for file in (folder / "store" / "odd", folder / "store" / "topics/orders-1/kafka_partition=0/odd"):
            file.write_bytes(b"\xff")
        done = txnlog("dump", name)
        assert (done.code, done.text) == (code, "")
        assert expected in done.err

    def test_a_damaged_object_is_named(self, folder: Path) -> None:
        (folder / "store" / names.entry(3)).write_bytes(b"{}")
        done = txnlog("dump", "3")
        assert done.code == 1
        assert names.entry(3) in done.err


class TestFiles:
    def test_committed_files_are_named_with_their_offsets(self) -> None:
        ok("produce", "-t", "orders", "-p", "0", stdin=b"2\n")
        rows = ok("files", "orders", "--json").json
        assert [(row["base_offset"], row["record_count"], row["is_whole"]) for row in rows] == [
            (0, 2, True),
            (3, 1, True),
        ]
        values = [value for row in rows for value in pq.read_table(row["path"]).column("value").to_pylist()]
        assert values == [b"0", b"1", b"2"]
        assert ok("files", "orders").lines[0].startswith("topic   partition  base offset")

    def test_paths_are_of_files_that_can_be_read_whole(self) -> None:
        ok("topics", "create", "arrows", "--set", "segment.format=arrow")
        ok("produce", "-t", "arrows", stdin=b"2\n")
        done = ok("files", "orders", "arrows", "--paths")
        assert [Path(line).suffix for line in done.lines] == [".parquet"]
        assert done.err.startswith("1 file left out, not being whole")

    def test_open_and_aborted_files_are_no_part_of_it(self) -> None:
        producer = open_transaction("open")
        assert len(ok("files", "orders", "--json").json) == 1
        producer.abort_transaction()
        producer.close()
        assert len(ok("files", "orders", "--json").json) == 1

    def test_they_are_as_of_an_entry_or_a_time(self) -> None:
        assert ok("files", "orders", "--entry", "2").err == "no files\n"
        assert len(ok("files", "orders", "--entry", "3", "--json").json) == 1
        assert len(ok("files", "orders", "--time", "0s", "--json").json) == 1
        ((row,),) = (ok("files", "orders", "--entry", "3", "--json").json,)
        assert row["view_entry"] == 3

    @pytest.mark.parametrize(
        ("words", "code", "expected"),
        [
            (("absent",), 1, "txnlog topics list shows"),
            (("orders", "--entry", "1", "--time", "0s"), 2, "exclude each other"),
            (("orders", "--time", "noon"), 2, "--time is 'noon': expected milliseconds since 1970"),
            (("orders", "--entry", "9999"), 1, "9999"),
        ],
    )
    def test_what_is_wrong_is_an_error(self, words: tuple[str, ...], code: int, expected: str) -> None:
        done = txnlog("files", *words)
        assert (done.code, done.text) == (code, "")
        assert expected in done.err


def test_the_store_of_the_tests_is_the_one_that_is_shown() -> None:
    with Store.open(store()) as opened:
        assert [topic.name for topic in opened.topics()] == ["orders"]
