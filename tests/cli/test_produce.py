"""`txnlog produce`: lines, files, keys, headers, transactions, typed topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktxn import KafkaError, KafkaException, Producer, read_arrow
from sparktxn._programs.cli.verbs import produce as producing
from tests.cli.terminal import ok, txnlog


@pytest.fixture(autouse=True)
def topics() -> None:
    ok("topics", "create", "orders", "-p", "2")
    ok("topics", "create", "trips", "--column", "id int64 not null", "--column", "at timestamp[us]")


def values(topic: str = "orders", form: str = r"%k=%s;") -> bytes:
    return ok("consume", "-t", topic, "-e", "-f", form).out


def test_each_line_is_a_record() -> None:
    done = ok("produce", "-t", "orders", "-p", "0", stdin=b"one\n\ntwo\nlast")
    assert done.err == "wrote 4 records to topic orders\n"
    assert values() == b"=one;=;=two;=last;"


def test_keys_choose_partitions() -> None:
    ok("produce", "-t", "orders", "-K", ":", stdin=b"a:1\nb:2:x\nnone\n")
    assert sorted(values().split(b";")) == [b"", b"=none", b"a=1", b"b=2:x"]


def test_bytes_that_are_no_text_are_kept() -> None:
    ok("produce", "-t", "orders", "-p", "1", "-D", r"\0", "-K", r"\x1e", stdin=b"\xff\x1e\xfe\n[red]\0\x1e\0")
    assert values() == b"\xff=\xfe\n[red];=;"


def test_headers_keys_and_null_are_for_all_records() -> None:
    ok("produce", "-t", "orders", "-p", "0", "-k", "o", "-H", "a=1", "-H", "b=", "-Z", stdin=b"x\n\n")
    rows = ok("consume", "-t", "orders", "-e", "--json").json
    assert [(row["key"], row["value"]) for row in rows] == [("o", "x"), ("o", None)]
    assert rows[0]["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": ""}]


def test_files_are_whole_records_or_lines(folder: Path) -> None:
    (folder / "a").write_bytes(b"1\n2\n")
    (folder / "b").write_bytes(b"3")
    ok("produce", "-t", "orders", "-p", "0", "a", "b")
    assert values(form="%s;") == b"1\n2\n;3;"
    ok("produce", "-t", "orders", "-p", "1", "--lines", "a", "b")
    assert ok("consume", "-t", "orders", "-p", "1", "-e").lines == ["1", "2", "3"]


def test_what_consume_prints_is_what_produce_takes() -> None:
    ok("produce", "-t", "orders", "-p", "0", "-K", ":", stdin=b"a:1\nb:2\n")
    printed = ok("consume", "-t", "orders", "-e", "-K", ":").out
    ok("produce", "-t", "orders", "-p", "1", "-K", ":", stdin=printed)
    assert ok("consume", "-t", "orders", "-p", "1", "-e", "-K", ":").out == printed == b"a:1\nb:2\n"


def test_all_records_of_a_call_are_one_transaction() -> None:
    done = ok("produce", "-t", "orders", "-K", ":", "--transactional-id", "shop", "--json", stdin=b"a:1\nb:2\nc:3\n")
    assert done.json == [{"topic": "orders", "record_count": 3, "transactional_id": "shop"}]
    states = ok("consume", "-t", "__transaction_state", "-e", "--json").json
    assert sum('"CompleteCommit"' in row["value"] for row in states) == 1


def test_a_call_that_fails_leaves_nothing_behind(folder: Path) -> None:
    (folder / "a").write_bytes(b"1")
    done = txnlog("produce", "-t", "orders", "a", "absent", "--transactional-id", "shop")
    assert (done.code, done.err) == (1, "txnlog: absent: No such file or directory\n")
    assert values() == b""
    ok("produce", "-t", "orders", "a", "--transactional-id", "shop")
    assert values() == b"=1;"


def test_ctrl_c_aborts_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(producing, "_key_and_value", interrupted)
    assert txnlog("produce", "-t", "orders", "--transactional-id", "shop", stdin=b"1\n").code == 130
    row = ok("consume", "-t", "__transaction_state", "-e", "--json").json[-1]
    assert '"Empty"' in row["value"] or '"CompleteAbort"' in row["value"]
    assert values() == b""


def test_a_record_that_is_not_stored_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(producer: Producer, topic: str, *_: object, on_delivery: object, **__: object) -> None:
        on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT, "the disk is full"), None)  # type: ignore[operator]

    monkeypatch.setattr(Producer, "produce", refused)
    done = txnlog("produce", "-t", "orders", stdin=b"1\n")
    assert (done.code, done.err) == (1, "txnlog: the disk is full\n")


def test_records_that_are_still_waiting_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producer, "flush", lambda *_: 3)
    done = txnlog("produce", "-t", "orders", "--timeout", "5s", stdin=b"1\n")
    assert done.code == 1
    assert done.err == "txnlog: 3 records not stored within 5 s: write them again, or use --timeout\n"


def test_a_full_queue_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    produce, calls = Producer.produce, []

    def full_once(producer: Producer, *arguments: object, **named: object) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise BufferError("full")
        produce(producer, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Producer, "produce", full_once)
    ok("produce", "-t", "orders", stdin=b"1\n")
    assert values() == b"=1;"


def test_a_typed_topic_takes_lines_of_json() -> None:
    lines = b'{"id": 1, "at": "2026-05-01T12:00:00"}\n\n{"at": null, "id": 2}\n'
    assert ok("produce", "-t", "trips", stdin=lines).err == "wrote 2 records to topic trips\n"
    assert [row["value"]["id"] for row in ok("consume", "-t", "trips", "-e", "--json").json] == [1, 2]


def test_what_consume_prints_of_a_typed_topic_is_what_produce_takes() -> None:
    types = ["b bool", "i int8", "f float", "s string", "y binary", "d date32", "z timestamp[us, tz=UTC]"]
    types += ["m decimal128(9, 2)", "l list<date32>", "p map<string, binary>", "t struct<a: int64, d: date32>"]
    ok("topics", "create", "all", "copy", *(word for text in types for word in ("--column", text)))
    line = (
        b'{"b":true,"i":-7,"f":0.5,"s":"x\\n","y":"/w==","d":"2026-05-01","z":"2026-05-01T12:00:00.000001Z",'
        b'"m":"-12.50","l":["2026-05-02",null],"p":[["k","/g=="]],"t":{"a":1,"d":"2026-05-03"}}\n'
    )
    ok("produce", "-t", "all", stdin=line + b"{}\n")
    printed = ok("consume", "-t", "all", "-e").out
    assert printed.startswith(line)
    ok("produce", "-t", "copy", stdin=printed)
    assert ok("consume", "-t", "copy", "-e").out == printed


KEYED = ("topics", "create", "people", "-p", "3", "--column", "id int64 not null", "--column", "city string not null")


def people() -> list[tuple[int, str]]:
    found = read_arrow("store", "people", columns=["id", "city"]).read_all().to_pylist()
    return sorted((row["id"], row["city"]) for row in found)


def test_a_keyed_topic_takes_upserts_and_deletes() -> None:
    ok(*KEYED, "--set", "primary.key=id")
    lines = (
        b'{"id": 1, "city": "Bonn"}\n{"id": 2, "city": "Ulm"}\n{"id": 1, "city": "Kiel"}\n{"id": 3, "city": "Jena"}\n'
    )
    ok("produce", "-t", "people", stdin=lines + b'{"id": 3, "_deleted": true}\n')
    assert people() == [(1, "Kiel"), (2, "Ulm")]
    ok("produce", "-t", "people", "--delete", "--transactional-id", "d", stdin=b'{"id": 2}\n{"id": 1, "city": null}\n')
    assert people() == []


KEYED_WRONG = [
    ((), b'{"id": 1, "city": "Bonn"}\n{"id": 2}\n', "line 2 is not a record of the topic: column 'city' is missing"),
    ((), b'{"id": 1, "city": null}\n', "column 'city' of topic 'people' may not be null in an upsert"),
    ((), b'{"city": "Bonn", "_deleted": true}\n', "column 'id' is missing"),
    ((), b'{"id": 1, "_deleted": 1}\n', "column '_deleted': 1 is not of type bool"),
    ((), b'{"id": 1, "_deleted": false}\n', "column 'city' is missing"),
    (("--delete",), b'{"id": 1, "_deleted": true}\n', "have a column '_deleted': leave one of them out"),
    (("--delete",), b'{"city": "Bonn"}\n', "column 'id' is missing"),
    (("-k", "1"), b'{"id": 1, "city": "Bonn"}\n', "is typed"),
]


@pytest.mark.parametrize(("words", "stdin", "expected"), KEYED_WRONG, ids=lambda value: str(value)[:30])
def test_what_is_no_upsert_or_delete_is_refused(words: tuple[str, ...], stdin: bytes, expected: str) -> None:
    ok(*KEYED, "--set", "primary.key=id")
    done = txnlog("produce", "-t", "people", *words, stdin=stdin)
    assert done.code == 2
    assert expected in done.err
    assert people() == []


WRONG = [
    (("-t", "absent"), b"", 1, "txnlog topics list shows the topics"),
    (("-t", "orders", "-H", "a"), b"", 2, "expected NAME=VALUE"),
    (("-t", "orders", "-K", ""), b"", 2, "must not be empty"),
    (("-t", "orders", "-K", ":", "-k", "a"), b"", 2, "exclude each other"),
    (("-t", "orders", "-p", "7"), b"1\n", 1, "7"),
    (("-t", "trips", "-k", "a"), b"", 2, "is typed"),
    (("-t", "trips", "--delete"), b"", 2, "has no key (primary.key)"),
    (("-t", "trips"), b'{"id": "x"}\n', 2, "line 1 is not a record of the topic: column 'id': "),
    (
        ("-t", "trips"),
        b'{"id": 1}\n{"id": 2, "ad": null}\n',
        2,
        "line 2 is not a record of the topic: there is no column 'ad'",
    ),
    (("-t", "trips"), b"not json\n", 2, "; expected id int64, at timestamp[us]"),
    (("-t", "trips"), b"[1]\n", 2, "expected a JSON object on each line"),
    (("-t", "trips"), b'{"at": null}\n', 2, "column 'id' is missing"),
    (("-t", "trips"), b'{"id": 1, "at": "noon"}\n', 2, "column 'at': "),
    (("-t", "__transaction_state"), b"1\n", 1, "is internal"),
]


@pytest.mark.parametrize(("words", "stdin", "code", "expected"), WRONG, ids=lambda value: str(value)[:30])
def test_what_is_wrong_is_refused_and_writes_nothing(
    words: tuple[str, ...], stdin: bytes, code: int, expected: str
) -> None:
    done = txnlog("produce", *words, stdin=stdin)
    assert (done.code, done.out) == (code, b"")
    assert expected in done.err
    assert done.err.count("\n") == 1
    assert values() == values("trips") == b""


def test_a_refused_call_raises_no_other_error() -> None:
    """A record that is too large is refused by the producer, inside the transaction."""
    done = txnlog(
        *("produce", "-t", "orders", "--transactional-id", "x", "-X", "message.max.bytes=1000"), stdin=b"x" * 2000
    )
    assert done.code == 1
    assert KafkaException.__name__ not in done.err
    assert values() == b""
