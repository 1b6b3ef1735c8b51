"""Produce: records into a transaction's memory, or into the next entry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from sparktxn._engine.state.settings import has_times_of_entries
from sparktxn._foundation.process.background import without_frames
from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._programs.gateway.appending import TransactionOfBatch
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.clienttransactions import opened_elsewhere
from sparktxn._programs.gateway.requestmemory import Loan
from sparktxn._programs.gateway.topiclookup import AskedTopic, unknown_id
from sparktxn._programs.gateway.typedrecords import RecordsRefused, rows_of, with_records, without_large_records
from sparktxn._programs.gateway.wire.recordbatches import (
    PayloadTooLarge,
    ProducedBatch,
    decode_batch,
    decoded_bytes,
    payload_limits,
    transaction_of,
)
from sparktxn._programs.gateway.wire.wirecodes import code_of, known_code, message_of
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request
from sparktxn._rows.stage.columnconversion import conformed
from sparktxn._rows.stage.recordsizes import row_above
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY
from sparktxn._rows.stage.uploading import RECORD_BYTES_MAX
from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from sparktxn.store.options import TopicIdPartition
from sparktxn.store.staging import StageTopic

_NO_PRODUCER: Final = -1
_ADDS_PARTITIONS: Final = 12
"""From this version on a batch of a transaction adds its partition, and begins the transaction (KIP-890)."""
_IDS_FROM: Final = 13
"""From this version on topics are named by their ids."""
_NOT_LEADER_OR_FOLLOWER: Final = 6
_SMALL_BYTES: Final = 16 * 1024
"""A smaller batch is decoded sooner than another thread takes it up."""


async def produce(broker: Broker, request: Request) -> Coroutine[Any, Any, Answer | None]:
    """Take the records of a request, in order, and return what answers it once they are stored.

    What a transaction is given is acknowledged from memory: its commit names what it contains. Or it is stored as
    other records are, with `stores_transactions`.
    """
    topics = await _topics(broker, request)
    refused = await _added(broker, request, topics)
    outcomes = []
    for topic in topics:
        error = topic.error or refused
        taken = [
            _failed(request, part.index, _placed(broker, request, error))
            if error
            else await _taken(broker, request, topic, part)
            for part in topic.partitions
        ]
        outcomes.append((topic, taken))
    return _answered(broker, request, outcomes)


async def _topics(broker: Broker, request: Request) -> list[AskedTopic]:
    if request.version < _IDS_FROM:
        return [AskedTopic(topic.name, topic.partition_data) for topic in request.body.topic_data]
    wanted = {topic.topic_id for topic in request.body.topic_data}
    if any(broker.topics.known_by_uuid(each) is None for each in wanted):
        await broker.calls.run(broker.topics.by_uuid, wanted)
    return [broker.topics.asked(topic.topic_id, topic.partition_data) for topic in request.body.topic_data]


async def _added(broker: Broker, request: Request, topics: Sequence[AskedTopic]) -> KafkaException | None:
    """Add the partitions of a transaction of version 2 to it, all at once; return why it does not take them."""
    if request.version < _ADDS_PARTITIONS:
        return None
    places: dict[ProducerIdAndEpoch, set[TopicIdPartition]] = {}
    for topic in topics:
        for part in topic.partitions:
            identity = transaction_of(part.records or b"")
            known = broker.log.topic(topic.name)
            if identity is not None and known is not None and broker.topics.has(topic.name, part.index):
                places.setdefault(identity, set()).add((known.topic_id, part.index))
    transactional_id = request.body.transactional_id or ""
    transactions = broker.transactions
    try:
        for identity, added in places.items():
            if not transactions.takes(transactional_id, identity, added):
                await broker.calls.run(transactions.register, transactional_id, identity, added)
    except KafkaException as error:
        return without_frames(error)
    return None


class _Waiting(NamedTuple):
    """A batch that is being stored. It is not a coroutine: a connection that is left awaits no answer."""

    topic: StageTopic
    partition: int
    future: Awaitable[Any]
    in_transaction: bool


_Outcome = dict[str, Any] | _Waiting


async def _answered(
    broker: Broker, request: Request, outcomes: Sequence[tuple[AskedTopic, Sequence[_Outcome]]]
) -> Answer | None:
    responses = []
    for topic, taken in outcomes:
        partitions = [await _outcome(broker, request, one) if isinstance(one, _Waiting) else one for one in taken]
        responses.append({"name": topic.name, "topic_id": topic.uuid, "partition_responses": partitions})
    return {"responses": responses} if request.body.acks != 0 else None


async def _taken(broker: Broker, request: Request, asked: AskedTopic, part: Any) -> _Outcome:
    body = request.body
    loan = Loan(broker.decompressed)
    try:
        topic, batch = await _batch(broker, asked, part, loan)
        identity = NO_IDENTITY
        transaction: TransactionOfBatch | int | None = None
        if batch.producer_id != _NO_PRODUCER:
            identity = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
        # Rows with a key are named in the list that ends the transaction, so they wait in memory in any case (rule K).
        if batch.is_transactional and broker.settings.stores_transactions and not topic.primary_key:
            named = (body.transactional_id or "", topic, part.index, batch)
            transaction = await broker.calls.run(broker.transactions.identify, *named)
        elif batch.is_transactional:
            offset = await broker.transactions.produce(body.transactional_id, topic, part.index, batch, broker.calls)
            loan.end()  # the transaction's memory has it
            return _stored(part.index, offset, -1, -1)
        if isinstance(transaction, int):  # an earlier transaction has stored it
            loan.end()
            return _stored(part.index, transaction, -1, 0)
        future = asyncio.wrap_future(
            broker.appends.add(
                topic, part.index, batch.records, identity, batch.base_sequence, batch.digest, transaction
            )
        )
        # Not by what awaits it: that waits for the other batches of the request, which may wait for this memory.
        future.add_done_callback(loan.end)
        return _Waiting(topic, part.index, future, in_transaction=transaction is not None)
    except KafkaException as error:
        loan.end()
        return _failed(request, part.index, _placed(broker, request, error))
    except BaseException:
        loan.end()
        raise


async def _batch(broker: Broker, asked: AskedTopic, part: Any, loan: Loan) -> tuple[StageTopic, ProducedBatch]:
    """Return a decoded batch, which has its memory by `loan` if it was compressed."""
    data = part.records or b""
    is_small = len(data) <= _SMALL_BYTES and broker.topics.has(asked.name, part.index)
    for limit in payload_limits(data):
        await loan.take(decoded_bytes(data, limit))
        with suppress(PayloadTooLarge):
            found = await _decoded_soon(broker, asked, part.index, data, limit, here=is_small)
            loan.shrink(found[1].records.nbytes)
            return found
        is_small = False
    raise AssertionError("a batch above the last limit is refused with a code")


async def _decoded_soon(
    broker: Broker, asked: AskedTopic, partition: int, records: bytes, payload_max: int, *, here: bool
) -> tuple[StageTopic, ProducedBatch]:
    decode = partial(_decoded, broker, asked, partition, records, payload_max)
    if here:
        # A refusal may have to read the log, which another thread does.
        with suppress(KafkaException):
            return decode()
    return await broker.calls.run(broker.log.decide, decode)


def _decoded(
    broker: Broker, asked: AskedTopic, partition: int, records: bytes, payload_max: int
) -> tuple[StageTopic, ProducedBatch]:
    name = asked.name
    topic = broker.log.changeable_topic(name)
    if topic is None or not 0 <= partition < topic.partition_count:
        raise CommandRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {name!r}")
    if asked.topic_id not in (None, topic.topic_id):  # deleted, and made again
        raise unknown_id(asked.uuid)
    stage = StageTopic.of(topic)
    now_ms = broker.log.clock.wall_ms()
    names_transactional = broker.settings.stores_transactions
    batch = decode_batch(records, now_ms, payload_max, names_transactional=names_transactional)
    if batch.producer_id != _NO_PRODUCER and batch.base_sequence < 0:
        raise CommandRefused(ErrorCode.INVALID_RECORD, "a batch of an idempotent producer has no sequence")
    try:
        rows = conformed(stage, rows_of(stage, partition, batch.records) if stage.schema else batch.records, now_ms)
    except RecordsRefused:
        raise
    except KafkaException as error:
        raise with_records(stage, batch.records, error) from error
    size_max = min(RECORD_BYTES_MAX, stage.message_bytes_max)
    if row_above(rows, size_max) is not None:
        raise without_large_records(rows, size_max)
    return stage, batch._replace(records=rows)


async def _outcome(broker: Broker, request: Request, waiting: _Waiting) -> dict[str, Any]:
    try:
        appended = await waiting.future
    except KafkaException as error:
        without_frames(error)
        if waiting.in_transaction and error.args[0].code() == ErrorCode.INVALID_TXN_STATE:
            error = opened_elsewhere(request.body.transactional_id)
        return _failed(request, waiting.partition, _placed(broker, request, error))
    broker.log_end.note(broker.log.entry)
    known = broker.log.topic(waiting.topic.name)  # its setting is fixed, as it has records
    append_time_ms = appended.timestamp_ms if known is not None and has_times_of_entries(known.settings) else -1
    return _stored(waiting.partition, appended.base_offset, append_time_ms, 0)


def _placed(broker: Broker, request: Request, error: KafkaException) -> KafkaException:
    """Return the error of a batch, or one that has a client look for its leader, where its transaction is open.

    A client comes to its new coordinator as soon as it is referred, and to its new leader minutes later.
    """
    transactional_id = request.body.transactional_id or ""
    is_elsewhere = error.error.code() == ErrorCode.TRANSACTION_ABORTABLE and not broker.transactions.holds(
        transactional_id
    )
    if not is_elsewhere:
        return error
    other = broker.referrals.other_gateway(transactional_id, request.client_host, request.client_id)
    return error if other is None else CommandRefused(_NOT_LEADER_OR_FOLLOWER, f"the leader is at {other}")


def _stored(partition: int, base_offset: int, append_time_ms: int, log_start_offset: int) -> dict[str, Any]:
    return {
        "index": partition,
        "error_code": 0,
        "base_offset": base_offset,
        "log_append_time": append_time_ms,
        "log_start_offset": log_start_offset,
        "record_errors": [],
    }


def _failed(request: Request, partition: int, error: KafkaException) -> dict[str, Any]:
    code = known_code(code_of(error), request.key, request.version)
    refused = error.records if isinstance(error, RecordsRefused) else ()
    return {
        **_stored(partition, -1, -1, -1),
        "error_code": code,
        "error_message": message_of(error),
        "record_errors": [{"batch_index": place, "batch_index_error_message": reason} for place, reason in refused],
    }
