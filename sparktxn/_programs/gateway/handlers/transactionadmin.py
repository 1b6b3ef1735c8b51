"""Administrators' requests for transactions (KIP-664): listing, describing and aborting them."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.clienttransactions import Unstored, unstored_transactions
from sparktxn._programs.gateway.handlers.adminanswers import DONE, Outcome, of_error, outcome_of, refused
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request
from sparktxn.admin import AbortTransactionSpec, TopicPartition, TransactionDescription, TransactionState
from sparktxn.admin.transactions import abort_ongoing
from sparktxn.errors import ErrorCode, KafkaException

_INT32_MAX: Final = 2**31 - 1
_INVALID_REGULAR_EXPRESSION: Final = 128


async def list_transactions(broker: Broker, request: Request) -> Answer:
    """Return the transactional ids that pass all filters; a state that does not exist is said, and matches nothing."""
    body = request.body
    states = {state.value for state in TransactionState}
    unknown = [state for state in body.state_filters if state not in states]
    named = [state for state in body.state_filters if state in states]
    answer = {"error_code": 0, "unknown_state_filters": unknown, "transaction_states": []}
    if body.state_filters and not named:
        return answer
    outcome = await broker.calls.run(_listed, broker, body, named)
    if outcome.code:
        is_pattern = outcome.code == ErrorCode.INVALID_REQUEST and getattr(body, "transactional_id_pattern", None)
        return {**answer, "error_code": _INVALID_REGULAR_EXPRESSION if is_pattern else outcome.code}
    listed = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "transaction_state": each.state.value,
        }
        for each in outcome.result
    ]
    return {**answer, "transaction_states": listed}


def _listed(broker: Broker, body: Any, states: list[str]) -> Outcome:
    return outcome_of(
        lambda: broker.admin.list_transactions(
            states=states or None,
            producer_ids=list(body.producer_id_filters) or None,
            duration_filter_ms=getattr(body, "duration_filter", -1),
            transactional_id_pattern=getattr(body, "transactional_id_pattern", None) or None,
        )
    )


async def describe_transactions(broker: Broker, request: Request) -> Answer:
    """Return transactional ids in more words."""
    states = []
    for transactional_id in request.body.transactional_ids:
        outcome = await broker.calls.run(_described, broker, transactional_id)
        states.append({"transactional_id": transactional_id, **_in_words(outcome)})
    return {"transaction_states": states}


def _described(broker: Broker, transactional_id: str) -> Outcome:
    return outcome_of(lambda: broker.admin.describe_transactions([transactional_id]))


def _in_words(outcome: Outcome) -> dict[str, Any]:
    if outcome.code:
        empty = {"transaction_state": "", "transaction_timeout": 0, "transaction_start_time": 0}
        return {"error_code": outcome.code, **empty, "producer_id": -1, "producer_epoch": -1, "topics": []}
    found: TransactionDescription = outcome.result
    topics = groupby(found.topic_partitions, attrgetter("topic"))
    return {
        "error_code": 0,
        "transaction_state": found.state.value,
        "transaction_timeout": found.transaction_timeout_ms,
        "transaction_start_time": found.transaction_start_time_ms or 0,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": [each.partition for each in partitions]} for topic, partitions in topics
        ],
    }


async def describe_producers(broker: Broker, request: Request) -> Answer:
    """Return the producers of partitions, with where an open transaction of each begins.

    One that has no records in a partition yet has a number in place of that: see `unstoredtransactions`.
    """
    topics = []
    for topic in request.body.topics:
        partitions = []
        for number in topic.partition_indexes:
            outcome = await broker.calls.run(_producers, broker, topic.name, number)
            producers = [] if outcome.code else outcome.result
            partitions.append({"partition_index": number, **outcome.said, "active_producers": producers})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _producers(broker: Broker, topic: str, partition: int) -> Outcome:
    outcome = outcome_of(lambda: broker.admin.describe_producers([TopicPartition(topic, partition)]))
    if outcome.code:
        return outcome
    found = {each.producer_id: _producer(each) for each in outcome.result.active_producers}
    for unstored in _unstored(broker, topic, partition):
        state = unstored.state
        known = {
            "last_sequence": -1,
            "last_timestamp": state.start_timestamp_ms,
            "coordinator_epoch": -1,
            **found.get(state.producer_id, {}),
        }
        found[state.producer_id] = {
            **known,
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "current_txn_start_offset": unstored.start_offset,
        }
    return Outcome(0, None, [found[producer_id] for producer_id in sorted(found)])


def _unstored(broker: Broker, topic: str, partition: int) -> list[Unstored]:
    known = broker.log.topic(topic)
    return [] if known is None else unstored_transactions(broker.log, (known.topic_id, partition))


def _producer(found: Any) -> dict[str, Any]:
    start_offset = found.current_transaction_start_offset
    return {
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "last_sequence": found.last_sequence,
        "last_timestamp": found.last_timestamp,
        # It is an entry here, of which there may be more than Kafka has numbers for.
        "coordinator_epoch": min(found.coordinator_epoch, _INT32_MAX),
        "current_txn_start_offset": -1 if start_offset is None else start_offset,
    }


async def write_txn_markers(broker: Broker, request: Request) -> Answer:
    """Abort open transactions, as `kafka-transactions abort` asks; none can be committed from outside."""
    markers = [await broker.calls.run(_ended, broker, marker) for marker in request.body.markers]
    return {"markers": markers}


def _ended(broker: Broker, marker: Any) -> dict[str, Any]:
    was_aborted = False
    topics = []
    for topic in marker.topics:
        partitions = []
        for number in topic.partition_indexes:
            outcome = _end(broker, marker, topic.name, number)
            if was_aborted and outcome.code == ErrorCode.INVALID_TXN_STATE:
                outcome = DONE  # with the first of its partitions the whole transaction was aborted
            was_aborted = was_aborted or not outcome.code
            partitions.append({"partition_index": number, "error_code": outcome.code})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"producer_id": marker.producer_id, "topics": topics}


def _end(broker: Broker, marker: Any, topic: str, partition: int) -> Outcome:
    if marker.transaction_result:
        return refused(ErrorCode.INVALID_REQUEST, "only the producer of a transaction commits it")
    try:
        spec = AbortTransactionSpec(
            TopicPartition(topic, partition), marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        )
        outcome = outcome_of(lambda: broker.admin.abort_transaction(spec))
        if outcome.code == ErrorCode.INVALID_TXN_STATE:
            return _end_unstored(broker, spec) or outcome
    except (KafkaException, TypeError, ValueError) as error:
        return of_error(error)
    return outcome


def _end_unstored(broker: Broker, spec: AbortTransactionSpec) -> Outcome | None:
    """Abort the open transaction of a producer that has no records in a partition yet; None if there is none."""
    where = spec.topic_partition
    for unstored in _unstored(broker, where.topic, where.partition):
        state = unstored.state
        if state.producer_id == spec.producer_id:
            if state.producer_epoch != spec.producer_epoch:
                reason = f"producer {spec.producer_id} has epoch {state.producer_epoch}, not {spec.producer_epoch}"
                return refused(ErrorCode.INVALID_PRODUCER_EPOCH, reason)
            abort_ongoing(broker.log, state)
            return DONE
    return None
