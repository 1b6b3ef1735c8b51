"""`txnlog consume`: formats, where it starts, where it ends, and groups."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from sparktxn import OFFSET_INVALID, Consumer, Producer, TopicPartition
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.printedrecords import Record, format_printer, parse_start, read_topics, unescaped
from sparktxn._programs.cli.verbs import consume as consuming
from sparktxn.admin import AdminClient
from sparktxn.store import Store
from tests.cli.shop import open_transaction
from tests.cli.terminal import ok, txnlog, unread

RECORDS = [
    ("orders", 0, b"k0", b"v0", [("h", b"1"), ("n", None)], 1_000),
    ("orders", 0, b"k1", b"v1", None, 2_000),
    ("orders", 1, None, b"v2", None, 3_000),
    ("orders", 1, b"k3", None, None, 4_000),
]


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    uri = str(folder / "store")
    ok("topics", "create", "orders", "-p", "2")
    with Producer({"bootstrap.servers": uri}) as producer:
        for topic, partition, key, value, headers, timestamp in RECORDS:
            producer.produce(topic, value, key, partition, headers=headers, timestamp=timestamp)
    with Store.open(uri) as opened:
        yield opened


def abort(uri: str, *values: str, partition: int = 0) -> None:
    with Producer({"bootstrap.servers": uri, "transactional.id": "gone"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.produce("orders", value, partition=partition)
        producer.flush()
        producer.abort_transaction()


@pytest.mark.usefixtures("store")
class TestFormats:
    def test_it_prints_values_in_lines(self) -> None:
        assert ok("consume", "-t", "orders", "-e").out == b"v0\nv1\nv2\n\n"

    def test_a_key_and_null_are_printed_when_asked_for(self) -> None:
        assert ok("consume", "-t", "orders", "-e", "-K", ":", "-Z").out == b"k0:v0\nk1:v1\nNULL:v2\nk3:NULL\n"

    def test_a_format_names_what_is_printed(self) -> None:
        done = ok("consume", "-t", "orders", "-e", "-p", "0", "-f", r"%t/%p/%o %T %k=%s (%h) %K %S 100%%\x21\t|\n")
        assert done.out == (b"orders/0/0 1000 k0=v0 (h=1,n=) 2 2 100%!\t|\norders/0/1 2000 k1=v1 () 2 2 100%!\t|\n")

    def test_a_delimiter_ends_records(self) -> None:
        assert ok("consume", "-t", "orders", "-e", "-p", "0", "-D", r"\0").out == b"v0\0v1\0"

    def test_json_has_one_object_on_a_line(self) -> None:
        first, *_, last = ok("consume", "-t", "orders", "-e", "--json").json
        assert first == {
            "topic": "orders",
            "partition": 0,
            "offset": 0,
            "timestamp_ms": 1000,
            "timestamp_type": "create",
            "key": "k0",
            "value": "v0",
            "headers": [{"name": "h", "value": "1"}, {"name": "n", "value": None}],
        }
        assert (last["key"], last["value"], last["headers"]) == ("k3", None, [])

    @pytest.mark.parametrize("words", [("-f", "%x"), ("-f", r"\q"), ("-D", r"\q"), ("-K", ":", "--json")])
    def test_a_wrong_format_is_refused(self, words: tuple[str, ...]) -> None:
        done = txnlog("consume", "-t", "orders", "-e", *words)
        assert (done.code, done.out) == (2, b"")
        assert "expected" in done.err or "leave one of them out" in done.err


def test_bytes_that_are_no_text_come_out_as_they_are(store: Store) -> None:
    with Producer({"bootstrap.servers": store.uri}) as producer:
        producer.produce("orders", b"\xff\x00[red]\x1b", b"\xfe", 0)
    assert ok("consume", "-t", "orders", "-p", "0", "-o", "2", "-e", "-K", ":").out == b"\xfe:\xff\x00[red]\x1b\n"
    (row,) = ok("consume", "-t", "orders", "-p", "0", "-o", "2", "-e", "--json").json
    assert (row["key_base64"], row["value_base64"]) == ("/g==", "/wBbcmVkXRs=")
    assert {"key", "value"}.isdisjoint(row)


class TestWhereItStarts:
    @pytest.mark.parametrize(
        ("offset", "values"),
        [
            ("beginning", b"v0 v1 v2  "),
            ("end", b""),
            ("1", b"v1  "),
            ("7", b""),
            ("-1", b"v1  "),
            ("-9", b"v0 v1 v2  "),
            ("s@2000", b"v1 v2  "),
            ("s@1970-01-01T00:00:03Z", b"v2  "),
            ("s@9000", b""),
        ],
    )
    def test_it_starts_where_the_offset_says(self, store: Store, offset: str, values: bytes) -> None:
        assert ok("consume", "-t", "orders", "-e", "-D", " ", "-o", offset).out == values

    def test_the_last_records_are_those_that_a_reader_sees(self, store: Store) -> None:
        abort(store.uri, *(f"gone {number}" for number in range(200)))
        assert ok("consume", "-t", "orders", "-p", "0", "-e", "-o", "-1").out == b"v1\n"
        uncommitted = ("--isolation", "read_uncommitted")
        assert ok("consume", "-t", "orders", "-p", "0", "-e", "-o", "-1", *uncommitted).out == b"gone 199\n"
        assert ok("consume", "-t", "orders", "-p", "0", "-e", "-o", "-201", *uncommitted).lines[:2] == ["v1", "gone 0"]

    @pytest.mark.parametrize("text", ["middle", "1.5", "--1", "s@noon", "9" * 20, ""])
    def test_another_form_is_refused(self, text: str) -> None:
        with pytest.raises(WrongUsage, match="expected"):
            parse_start(text)

    def test_an_offset_below_the_log_start_reads_what_is_kept(self, store: Store) -> None:
        with AdminClient({"bootstrap.servers": store.uri}) as admin:
            for future in admin.delete_records([TopicPartition("orders", 0, 1)]).values():
                future.result()
        assert ok("consume", "-t", "orders", "-p", "0", "-e", "-o", "0").out == b"v1\n"


class TestWhatIsRead:
    def test_aborted_records_are_left_out_unless_they_are_asked_for(self, store: Store) -> None:
        abort(store.uri, "gone")
        assert ok("consume", "-t", "orders", "-p", "0", "-e").lines == ["v0", "v1"]
        done = ok("consume", "-t", "orders", "-p", "0", "-e", "--isolation", "read_uncommitted")
        assert done.lines == ["v0", "v1", "gone"]

    def test_a_count_ends_it_without_a_wait(self, store: Store) -> None:
        assert ok("consume", "-t", "orders", "-c", "3").out == b"v0\nv1\nv2\n"

    def test_several_topics_are_read(self, store: Store) -> None:
        ok("topics", "create", "more")
        ok("produce", "-t", "more", stdin=b"m\n")
        assert sorted(ok("consume", "-t", "orders", "-t", "more", "-t", "more", "-e").lines) == [
            "",
            "m",
            "v0",
            "v1",
            "v2",
        ]

    def test_internal_topics_are_rows_of_json(self, store: Store) -> None:
        ok("produce", "-t", "orders", "--transactional-id", "shop", stdin=b"m\n")
        rows = [json.loads(line) for line in ok("consume", "-t", "__transaction_state", "-e").lines]
        assert rows[-1]["state"] == "CompleteCommit"
        assert json.loads(ok("consume", "-t", "__transaction_state", "-e", "--json").json[-1]["key"])
        last = [json.loads(line) for line in ok("consume", "-t", "__transaction_state", "-o", "-2", "-e").lines]
        assert last == rows[-2:]

    def test_a_typed_topic_gives_its_columns(self, store: Store) -> None:
        ok("topics", "create", "trips", "--column", "id int64", "--column", "raw binary", "--column", "day date32")
        ok("produce", "-t", "trips", stdin=b'{"id": 1, "day": "2026-05-01"}\n')
        assert ok("consume", "-t", "trips", "-e").lines == ['{"id":1,"raw":null,"day":"2026-05-01"}']
        assert ok("consume", "-t", "trips", "-e", "--json").json[0]["value"] == {
            "id": 1,
            "raw": None,
            "day": "2026-05-01",
        }

    def test_a_keyed_topic_gives_all_rows_and_says_which_are_deletes(self, store: Store) -> None:
        key = ("--column", "id int64 not null", "--column", "city string not null", "--set", "primary.key=id")
        ok("topics", "create", "people", *key)
        (row,) = ok("topics", "describe", "people", "--json").json
        assert row["columns"] == [
            {"column": "id", "type": "int64", "nullable": False},
            {"column": "city", "type": "string", "nullable": False},
        ]
        assert row["settings"]["primary.key"] == "id"
        with Producer({"bootstrap.servers": store.uri, "store.fsync": False}) as producer:
            producer.produce_arrow("people", pa.table({"id": [1], "city": ["Bonn"]}))
            producer.produce_arrow("people", pa.table({"id": [1]}), delete=True)
            producer.flush(30)
        lines = ['{"id":1,"city":"Bonn","_deleted":false}', '{"id":1,"city":null,"_deleted":true}']
        assert ok("consume", "-t", "people", "-e").lines == lines
        assert ok("consume", "-t", "people", "-G", "g", "-e").lines == lines
        # What is printed of one is what another one takes.
        ok("topics", "create", "copied", *key)
        ok("produce", "-t", "copied", stdin="\n".join(lines).encode())
        assert ok("consume", "-t", "copied", "-e").lines == lines

    @pytest.mark.parametrize(
        ("words", "code", "expected"),
        [
            (("-t", "absent"), 1, "txnlog topics list shows the topics"),
            (("-t", "orders", "-p", "2"), 2, "has partitions 0 to 1, not 2"),
            (("-t", "orders", "-G", "g", "-o", "5"), 2, "txnlog groups reset"),
            (("-t", "orders", "-G", "g", "-p", "0"), 2, "the group decides the partitions"),
            (("-t", "orders", "-G", "g", "-X", "session.timeout.ms=never"), 2, "session.timeout.ms"),
            (("-t", "absent", "-G", "g"), 1, "does not exist"),
        ],
    )
    def test_what_cannot_be_read_is_an_error(
        self, store: Store, words: tuple[str, ...], code: int, expected: str
    ) -> None:
        done = txnlog("consume", "-e", *words)
        assert (done.code, done.out) == (code, b"")
        assert expected in done.err


class TestFollowing:
    def test_it_goes_on_with_what_comes_later(self, store: Store) -> None:
        records = read_topics(store, ["orders"], [0], parse_start("end"), "read_committed", follow=True, timeout_s=9)
        assert next(records) is None
        ok("produce", "-t", "orders", "-p", "0", stdin=b"later\n")
        found = next(one for one in records if one is not None)
        assert (found.value, found.offset) == (b"later", 2)

    def test_partitions_that_come_later_are_read_from_their_start(self, store: Store) -> None:
        records = read_topics(store, ["orders"], [], parse_start("end"), "read_committed", follow=True, timeout_s=9)
        assert next(records) is None
        ok("topics", "alter", "orders", "-p", "3")
        ok("produce", "-t", "orders", "-p", "2", stdin=b"new\n")
        assert next(one for one in records if one is not None).value == b"new"

    def test_a_deleted_topic_ends_it_with_an_error(self, store: Store) -> None:
        records = read_topics(store, ["orders"], [], parse_start("end"), "read_committed", follow=True, timeout_s=9)
        assert next(records) is None
        ok("topics", "delete", "orders", "--apply")
        with pytest.raises(Exception, match="does not exist"):
            next(records)


class TestGroups:
    def committed(self, store: Store, partition: int) -> int:
        settings = {"bootstrap.servers": store.uri, "group.id": "g"}
        with Consumer(settings) as consumer:
            return consumer.committed([TopicPartition("orders", partition)])[0].offset

    def test_a_group_goes_on_where_it_was(self, store: Store) -> None:
        first = ok("consume", "-t", "orders", "-G", "g", "-c", "3").lines
        second = ok("consume", "-t", "orders", "-G", "g", "-e").lines
        assert sorted(first + second) == ["", "v0", "v1", "v2"]
        assert (self.committed(store, 0), self.committed(store, 1)) == (2, 2)
        assert ok("consume", "-t", "orders", "-G", "g", "-e").out == b""

    def test_a_group_without_offsets_may_start_at_the_end(self, store: Store) -> None:
        assert ok("consume", "-t", "orders", "-G", "g", "-e", "-o", "end").out == b""

    @pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
    def test_only_what_was_printed_is_committed(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        monkeypatch.setattr(consuming, "_FLUSH_RECORDS", 1)
        done = unread("consume", "-t", "orders", "-G", "g", "-e", error=OSError(number, os.strerror(number)))
        assert done.code == (number == errno.ENOSPC)
        assert (self.committed(store, 0), self.committed(store, 1)) == (OFFSET_INVALID, OFFSET_INVALID)

    def test_a_typed_topic_is_read_in_a_group(self, store: Store) -> None:
        ok("topics", "create", "trips", "--column", "id int64")
        ok("produce", "-t", "trips", stdin=b'{"id": 1}\n{"id": 2}\n')
        assert ok("consume", "-t", "trips", "-G", "g", "-c", "1").lines == ['{"id":1}']
        assert ok("consume", "-t", "trips", "-G", "g", "-e").lines == ['{"id":2}']
        done = txnlog("consume", "-t", "trips", "-t", "orders", "-G", "g", "-e")
        assert (done.code, done.out) == (2, b"")


def test_every_token_of_a_format_is_known() -> None:
    record = Record("t", 1, 2, 3, False, None, None, [])
    assert format_printer("%t%p%o%k%s%h%T%K%S%%\\\\%", null=b"~")(record) == b"t12~~3-1-1%\\%"
    assert unescaped(r"\x1eé\n") == "\x1eé\n".encode()


class TestOrder:
    """A transaction that is open holds records back in offset order only."""

    @pytest.fixture
    def blocked(self) -> Iterator[Producer]:
        """A topic whose first record is of an open transaction, before two that are committed."""
        ok("topics", "create", "blocked")
        with open_transaction("slow", "blocked") as producer:
            ok("produce", "-t", "blocked", stdin=b"a\nb\n")
            yield producer

    def consumed(self, *words: str) -> bytes:
        return ok("consume", "-t", "blocked", "-D", " ", "-e", *words).out

    @pytest.mark.parametrize(
        ("words", "values"),
        [
            ((), b"a b "),
            (("--order", "commit"), b"a b "),
            (("--order", "offset"), b""),
            (("--isolation", "read_uncommitted"), b"open a b "),
            (("-o", "2"), b"b "),
            (("-o", "-1"), b"b "),
            (("-o", "-1", "--order", "offset"), b""),
            (("-o", "s@0"), b"a b "),
            (("-o", "end"), b""),
            (("-G", "group"), b""),
        ],
    )
    def test_what_is_committed_is_read_unless_offset_order_is_asked_for(
        self, blocked: Producer, words: tuple[str, ...], values: bytes
    ) -> None:
        assert self.consumed(*words) == values

    @pytest.mark.parametrize(("start", "first"), [("end", []), ("-1", ["b"]), ("2", ["b"])])
    def test_a_follower_gets_a_transaction_when_it_is_committed(
        self, store: Store, blocked: Producer, start: str, first: list[str]
    ) -> None:
        records = read_topics(store, ["blocked"], [], parse_start(start), "read_committed", follow=True, timeout_s=60.0)
        assert values_of_round(records) == first
        blocked.commit_transaction()
        assert values_of_round(records) == ([] if start == "2" else ["open"])
        ok("produce", "-t", "blocked", stdin=b"c\n")
        assert values_of_round(records) == ["c"]

    def test_a_group_and_uncommitted_records_have_offset_order_only(self, blocked: Producer) -> None:
        for words in (("-G", "group"), ("--isolation", "read_uncommitted")):
            done = txnlog("consume", "-t", "blocked", "-e", "--order", "commit", *words)
            assert (done.code, "order" in done.err) == (2, True)


def values_of_round(records: Iterator[Record | None]) -> list[str]:
    """The values that a reader gives until it has given all that there is."""
    return [record.value.decode() for record in iter(partial(next, records), None) if record is not None]
