"""Produce outside transactions: each batch is stored once, in order, or refused with Kafka's code."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode as WireCode

from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from sparktxn.store import Store, read_task
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway, gateway, raw_client
from tests.gateway.requests import batch, fetch, init_producer, produce, produce_members, read_all, records_of


def test_records_are_read_as_they_were_sent(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        answer = await produce(client, "t", 0, batch([b"1", b"2"]))
        assert (answer.error_code.value, answer.base_offset) == (0, 0)
        assert (await produce(client, "t", 0, batch([b"3"]))).base_offset == 2
        found = await fetch(client, "t", 0, 1)
        assert records_of(found.records) == [(1, b"2"), (2, b"3")]
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (3, 3, 0)

    at_a_gateway(tmp_path, case)


def test_a_batch_of_an_idempotent_producer_is_stored_once_through_whichever_gateway(tmp_path):
    async def case(served: Gateway, client: RawClient) -> None:
        identity = await init_producer(client)
        (tmp_path / "same").symlink_to(tmp_path / "store", target_is_directory=True)
        async with gateway(tmp_path / "same") as other, raw_client(other) as second:
            for number, to in enumerate((client, second, second, client)):
                sent = batch([b"%d" % number, b"+"], identity, 2 * number)
                for each in (to, to, second, client):
                    answer = await produce(each, "t", 0, sent)
                    assert (answer.error_code.value, answer.base_offset) == (0, 2 * number)
        assert await read_all(client, "t") == [b"0", b"+", b"1", b"+", b"2", b"+", b"3", b"+"]

    at_a_gateway(tmp_path, case)


def test_batches_that_are_sent_twice_at_once_are_stored_once(tmp_path):
    """A client that has lost its connection sends again what still waits to be stored."""

    async def case(served: Gateway, client: RawClient) -> None:
        identity = await init_producer(client)
        async with raw_client(served) as again:
            for number in range(3):
                sent = produce_members("t", 0, batch([b"%d" % number], identity, number))
                await client.send(0, 9, **sent)
                await again.send(0, 9, **sent)
            for each in (client, again):
                for number in range(3):
                    answer = (await each.receive(0, 9)).responses[0].partition_responses[0]
                    assert (answer.error_code.value, answer.base_offset) == (0, number)
        assert await read_all(client, "t") == [b"0", b"1", b"2"]

    at_a_gateway(tmp_path, case, linger_ms=100)


def test_requests_of_a_connection_are_answered_in_order_and_share_an_entry(tmp_path):
    async def case(served: Gateway, client: RawClient) -> None:
        before = served.broker.log.refresh()
        for number in range(5):
            await client.send(0, 9, **produce_members("t", 0, batch([b"%d" % number])))
        answers = [(await client.receive(0, 9)).responses[0].partition_responses[0] for _ in range(5)]
        assert [answer.base_offset for answer in answers] == [0, 1, 2, 3, 4]
        # This gateway's own producer, what came first, and what has gathered since.
        assert served.broker.log.refresh() - before <= 3

    at_a_gateway(tmp_path, case, linger_ms=200)


def test_a_batch_that_follows_none_is_refused_alone(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        identity = await init_producer(client)
        assert (await produce(client, "t", 0, batch([b"1"], identity, 0))).error_code.value == 0
        for records in (batch([b"1"], identity, 0), batch([b"x"], identity, 7), batch([b"2"], identity, 1)):
            await client.send(0, 9, **produce_members("t", 0, records))
        codes = [(await client.receive(0, 9)).responses[0].partition_responses[0].error_code for _ in range(3)]
        assert codes == [WireCode.none, WireCode.out_of_order_sequence_number, WireCode.none]
        assert await read_all(client, "t") == [b"1", b"2"]

    at_a_gateway(tmp_path, case, linger_ms=50)


def test_without_acknowledgement_nothing_is_answered(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        await client.send(0, 9, **produce_members("t", 0, batch([b"1"]), acks=0))
        answer = await produce(client, "t", 0, batch([b"2"]))
        assert answer.base_offset == 1
        assert await read_all(client, "t") == [b"1", b"2"]

    at_a_gateway(tmp_path, case)


def _with(data: bytes, place: int, value: int) -> bytes:
    return data[:place] + bytes([value]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", WireCode.corrupt_message),
        (batch([b"1"])[:40], WireCode.corrupt_message),
        (_with(batch([b"1"]), 70, 9), WireCode.corrupt_message),
        (_with(batch([b"1"]), 16, 1), WireCode.unsupported_for_message_format),
        (batch([b"1"]) * 2, WireCode.invalid_record),
        (batch([b"1"], ProducerIdAndEpoch(1, 0), -1), WireCode.invalid_record),
        (batch([b"x" * 2_000_000]), WireCode.message_too_large),
    ],
)
def test_a_batch_that_is_not_right_is_refused(tmp_path, records, code):
    async def case(_: Gateway, client: RawClient) -> None:
        assert (await produce(client, "t", 0, records)).error_code == code
        assert await read_all(client, "t") == []

    at_a_gateway(tmp_path, case)


def test_unknown_and_internal_partitions_take_no_records(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        for topic, partition, code in [
            ("t", 2, WireCode.unknown_topic_or_partition),
            ("none", 0, WireCode.unknown_topic_or_partition),
            ("__transaction_state", 0, WireCode.invalid_topic_exception),
        ]:
            assert (await produce(client, topic, partition, batch([b"1"]))).error_code == code

    at_a_gateway(tmp_path, case)


def typed(*values: bytes, key: bytes | None = None) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for place, value in enumerate(values):
        builder.append(place, 1_700_000_000_000, key, value, [])
    return bytes(builder.build())


def test_rows_of_typed_topics_are_json(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))])
    lines = [b'{"id":1,"at":"2026-01-02T03:04:05Z","tags":["a",null]}', b'{"id":9007199254740993}', b"{}"]

    async def case(served: Gateway, client: RawClient) -> None:
        store = served.broker.store
        store.create_topic("typed", schema=schema)
        assert (await produce(client, "typed", 0, typed(*lines))).error_code == WireCode.none
        view = store.view(["typed"])
        rows = [row for task in store.plan_view(view) for rows in read_task(task) for row in rows.to_pylist()]
        assert [row["id"] for row in rows] == [1, 9007199254740993, None]
        assert rows[0]["tags"] == ["a", None]
        assert await read_all(client, "typed") == [
            lines[0],
            b'{"id":9007199254740993,"at":null,"tags":null}',
            b'{"id":null,"at":null,"tags":null}',
        ]
        # A column that the topic gains is a member of all objects, at once.
        store.add_columns("typed", pa.schema([("later", pa.int64())]))
        assert (await produce(client, "typed", 0, typed(b'{"id":4}', b'{"id":5,"later":6}'))).error_code == 0
        values = await read_all(client, "typed")
        assert values[1] == b'{"id":9007199254740993,"at":null,"tags":null,"later":null}'
        assert values[3:] == [
            b'{"id":4,"at":null,"tags":null,"later":null}',
            b'{"id":5,"at":null,"tags":null,"later":6}',
        ]

    at_a_gateway(tmp_path, case)


@pytest.mark.parametrize(
    "records",
    [
        typed(b"no json"),
        typed(b'{"id":"text"}'),
        typed(b'{"other":1}'),
        typed(b'{"id":1}', key=b"k"),
        batch([b'{"id":1}']),
        typed(b'{"id":1}', b'{"id":1.5}'),
    ],
)
def test_values_that_are_no_rows_of_a_typed_topic_are_refused(tmp_path, records):
    async def case(served: Gateway, client: RawClient) -> None:
        served.broker.store.create_topic("typed", schema=pa.schema([("id", pa.int64())]))
        assert (await produce(client, "typed", 0, records)).error_code == WireCode.invalid_record
        assert await read_all(client, "typed") == []

    at_a_gateway(tmp_path, case)


def test_what_fails_unforeseen_is_refused_and_what_comes_later_is_stored(tmp_path, monkeypatch):
    async def case(served: Gateway, client: RawClient) -> None:
        appends = served.broker.appends
        with monkeypatch.context() as patched:
            patched.setattr(appends, "_round", lambda taken: 1 / 0)
            refused = await produce(client, "t", 0, batch([b"1"]))
        assert refused.error_code == WireCode.unknown_server_error
        assert (await produce(client, "t", 0, batch([b"2"]))).error_code == WireCode.none
        assert await read_all(client, "t") == [b"2"]

    at_a_gateway(tmp_path, case)


def keyed(*records: tuple[bytes | None, bytes | None, int]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
    for place, (key, value, timestamp_ms) in enumerate(records):
        builder.append(place, timestamp_ms, key, value, [])
    return bytes(builder.build())


AT_MS = 1_700_000_000_000
ROW = b'{"id":1}'


@pytest.mark.parametrize(
    ("topic", "records", "code", "named"),
    [
        (
            "compacted",
            keyed((b"k", b"1", AT_MS), (None, b"2", AT_MS), (b"k", b"3", AT_MS), (None, b"4", AT_MS)),
            WireCode.invalid_record,
            {1: "has none", 3: "has none"},
        ),
        (
            "t",
            keyed((None, b"1", AT_MS), (None, b"x" * 1_100_000, AT_MS), (None, b"2", AT_MS)),
            WireCode.message_too_large,
            {1: "1100000 bytes is larger than 1048588"},
        ),
        ("t", keyed((None, b"1", AT_MS), (None, b"2", -5)), WireCode.invalid_timestamp, {1: "is -5 ms"}),
        (
            "typed",
            typed(ROW, b"no json", ROW, b'{"id":1.5}', b'{"other":1}', ROW),
            WireCode.invalid_record,
            {1: "expected id int64", 3: "column 'id'", 4: "there is no column 'other'"},
        ),
        ("typed", keyed((None, ROW, AT_MS), (b"k", ROW, AT_MS)), WireCode.invalid_record, {1: "has a key"}),
        ("typed", keyed((None, ROW, AT_MS), (None, None, AT_MS)), WireCode.invalid_record, {1: "has no value"}),
        ("typed", batch([ROW]), WireCode.invalid_record, {0: "has a key"}),
    ],
)
def test_a_refusal_names_the_records_that_caused_it(tmp_path, topic, records, code, named):
    async def case(served: Gateway, client: RawClient) -> None:
        served.broker.store.create_topic("typed", schema=pa.schema([("id", pa.int64())]))
        served.broker.store.create_topic("compacted", settings={"cleanup.policy": "compact"})
        answer = await produce(client, topic, 0, records)
        assert answer.error_code == code
        assert answer.error_message
        found = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
        assert list(found) == list(named)
        for place, words in named.items():
            assert words in found[place]
        assert await read_all(client, topic) == []

    at_a_gateway(tmp_path, case)


def test_a_refusal_names_so_many_records_and_reads_no_value_again_for_each(tmp_path):
    async def case(served: Gateway, client: RawClient) -> None:
        served.broker.store.create_topic("typed", schema=pa.schema([("id", pa.int64())]))
        answer = await produce(client, "typed", 0, typed(*[ROW, b"no json"] * 3_000))
        assert [each.batch_index for each in answer.record_errors] == list(range(1, 2_000, 2))
        older = await client.call(0, 7, **produce_members("typed", 0, typed(b"no json")))
        assert older.responses[0].partition_responses[0].error_code == WireCode.invalid_record

    at_a_gateway(tmp_path, case)


def test_a_batch_is_refused_by_what_the_log_says_now(tmp_path):
    """What another process has changed a moment ago is not a reason to refuse it."""

    def set_(topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        with AdminClient({"bootstrap.servers": str(tmp_path / "same")}) as admin:
            (done,) = admin.incremental_alter_configs(
                [ConfigResource("topic", topic, incremental_configs=[entry])]
            ).values()
            done.result()

    async def case(served: Gateway, client: RawClient) -> None:
        (tmp_path / "same").symlink_to(tmp_path / "store", target_is_directory=True)
        with Store.open(str(tmp_path / "same")) as other:
            other.create_topic("small", settings={"max.message.bytes": "100"})
            other.create_topic("keyed", settings={"cleanup.policy": "compact"})
            other.create_topic("typed", schema=pa.schema([("id", pa.int64())]))
            cases = [
                ("small", batch([b"x" * 500]), lambda: set_("small", "max.message.bytes", "1000")),
                ("small", batch([b"x" * 30_000]), lambda: set_("small", "max.message.bytes", "100000")),
                ("keyed", typed(b"no key"), lambda: set_("keyed", "cleanup.policy", "delete")),
                (
                    "typed",
                    typed(b'{"id": 1, "more": "m"}'),
                    lambda: other.add_columns("typed", pa.schema([("more", pa.string())])),
                ),
                ("new", batch([b"v"]), lambda: other.create_topic("new")),
            ]
            for topic, sent, change in cases:
                assert (await produce(client, topic, 0, sent)).error_code != WireCode.none, topic
                await asyncio.to_thread(change)
                assert (await produce(client, topic, 0, sent)).error_code == WireCode.none, topic

    at_a_gateway(tmp_path, case)
