"""Appending: sequences, epochs, duplicates (K56 to K62, K65), last stable offset and aborted ranges (K71 to K75)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import Command, DeleteRecords, Vacuum
from sparktxn._engine.format.names import is_inline, merged_segment_file, segment_file
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._engine.state.transactions.producerfencing import SEQUENCE_MAX
from sparktxn._foundation.values.structs import AbortedTransaction
from sparktxn.errors import CommandRefused, ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE = (1, 0)


@pytest.fixture
def producer(log: PureLog) -> ProducerCommands:
    """An idempotent one."""
    return log.initialise(None)


@pytest.mark.kafka("K56")
def test_k56_the_next_sequence_is_taken_a_gap_is_not(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0, 10))
    assert log.refusal(producer.append(HERE, 11)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.submit(producer.append(HERE, 10))[0].base_offset == 10


@pytest.mark.kafka("K57")
def test_k57_the_last_five_batches_are_recognised_and_the_sixth_is_not(log: PureLog, producer) -> None:
    for sequence in range(7):
        log.submit(producer.append(HERE, sequence))
    entry = log.entry
    for sequence in range(2, 7):
        told = log.submit(producer.append(HERE, sequence))[0]
        assert (told.duplicate, told.base_offset) == (True, sequence)
    assert log.entry == entry
    assert log.refusal(producer.append(HERE, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.kafka("K58")
def test_k58_a_partial_overlap_is_no_duplicate(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0, 10))
    assert log.refusal(producer.append(HERE, 0, 9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refusal(producer.append(HERE, 5, 10)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.kafka("K59")
def test_k59_an_older_epoch_is_refused(log: PureLog, producer) -> None:
    log.submit(replace(producer, producer_epoch=3).append(HERE, 0))
    assert log.refusal(producer.append(HERE, 1)) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.kafka("K60")
def test_k60_a_new_epoch_starts_at_0_and_forgets_the_batches(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0))
    newer = replace(producer, producer_epoch=1)
    assert log.refusal(newer.append(HERE, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.submit(newer.append(HERE, 0))[0].base_offset == 1


@pytest.mark.kafka("K60")
def test_k60_after_a_fence_the_next_epoch_starts_at_0(log: PureLog) -> None:
    first = log.initialise("id")
    log.submit(first.append(HERE, 0, transaction=1))
    second = log.initialise("id")
    assert log.refusal(second.append(HERE, 1, transaction=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.submit(second.append(HERE, 0, transaction=2))


@pytest.mark.kafka("K61")
def test_k61_0_follows_the_largest_sequence(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, SEQUENCE_MAX - 1, 2))
    assert log.refusal(producer.append(HERE, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.submit(producer.append(HERE, 0))


@pytest.mark.kafka("K61")
def test_k61_a_batch_may_wrap_inside(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, SEQUENCE_MAX, 3))
    assert log.submit(producer.append(HERE, SEQUENCE_MAX, 3))[0].duplicate
    log.submit(producer.append(HERE, 2))


@pytest.mark.kafka("K62")
def test_k62_without_producer_state_any_first_sequence_is_taken(log: PureLog, producer) -> None:
    assert log.submit(producer.append(HERE, 42))[0].base_offset == 0


@pytest.mark.kafka("K65")
def test_k65_no_append_outside_an_open_transaction_of_the_same_producer(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1))
    assert log.refusal(producer.append(HERE, 1)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.kafka("K57")
def test_hole_30_a_batch_of_an_aborted_transaction_is_no_duplicate(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1, committed=False))
    assert log.refusal(producer.append(HERE, 0, transaction=1)) == ErrorCode.INVALID_TXN_STATE
    assert log.refusal(producer.append(HERE, 0, transaction=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.submit(producer.append(HERE, 1, transaction=2))


@pytest.mark.kafka("K57")
def test_a_batch_of_another_transaction_is_no_duplicate(log: PureLog) -> None:
    """Its success would be an acknowledgement for records that the new transaction does not hold."""
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1))
    assert (
        log.refusal(
            producer.append(HERE, 0, transaction=2),
        )
        == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


@pytest.mark.kafka("K57")
def test_a_committed_list_of_more_than_five_batches_is_recognised(log: PureLog) -> None:
    producer = log.initialise("id")
    commands: list[Command] = [
        *(producer.append(HERE, sequence, transaction=1) for sequence in range(12)),
        producer.end(1),
    ]
    log.submit(*commands)
    entry = log.entry
    assert all(result.duplicate for result in log.submit(*commands))
    assert log.entry == entry
    assert log.refusal(producer.append(HERE, 12, transaction=1)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.kafka("K57", "K61")
def test_a_committed_list_is_recognised_across_the_wrap(log: PureLog) -> None:
    producer = log.initialise("id")
    sequences = [(SEQUENCE_MAX - 5 + number) % (SEQUENCE_MAX + 1) for number in range(12)]
    commands: list[Command] = [
        *(producer.append(HERE, sequence, transaction=1) for sequence in sequences),
        producer.end(1),
    ]
    log.submit(*commands)
    told = log.submit(*commands)
    assert all(result.duplicate for result in told)
    assert [result.base_offset for result in told[:-1]] == [-1] * 7 + list(range(7, 12))
    for ahead in (6, 7, 1_000):
        assert log.refusal(producer.append(HERE, ahead, transaction=1)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.kafka("K56")
def test_what_is_appended_is_named_in_order_with_its_place(log: PureLog, producer) -> None:
    sent = [producer.append(HERE, 0, 3), producer.append(HERE, 3, 2)]
    for command in sent:
        log.submit(command)
    named = log.segments().segments
    assert [(segment.name, segment.base_offset, segment.record_count) for segment in named] == [
        (sent[0].segment, 0, 3),
        (sent[1].segment, 3, 2),
    ]
    assert [segment.base_sequence for segment in named] == [0, 3]
    assert [segment.entry for segment in named] == [log.entry - 1, log.entry]


@pytest.mark.parametrize("count", [0, -1])
def test_an_empty_segment_is_refused(log: PureLog, producer, count: int) -> None:
    assert log.refusal(producer.append(HERE, 0, count)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("where", [(1, 2), (2, 0)])
def test_hole_36_a_topic_id_that_does_not_exist_is_refused(log: PureLog, producer, where: tuple[int, int]) -> None:
    assert log.refusal(producer.append(where, 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_segment_that_knows_entries_to_come_is_refused(log: PureLog, producer) -> None:
    assert log.refusal(producer.append(HERE, 0, born=log.entry + 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    log.submit(producer.append(HERE, 0, born=log.entry))


def test_hole_9_a_segment_born_below_the_floor_is_refused(log: PureLog, producer) -> None:
    store = replace(log.records[("store",)], segment_floor=2)
    log.records[store.key] = store
    assert log.refusal(producer.append(HERE, 0, born=1)) == ErrorCode.KAFKA_STORAGE_ERROR
    log.submit(producer.append(HERE, 0, born=2))


@pytest.mark.kafka("K71")
def test_k71_without_transactions_the_last_stable_offset_is_the_end(log: PureLog, producer) -> None:
    log.submit(producer.append(HERE, 0, 5))
    assert last_stable_offset(log.partition()) == log.partition().log_end_offset == 5


@pytest.mark.kafka("K72")
def test_k72_the_last_stable_offset_stays_at_the_oldest_open_transaction(log: PureLog, producer) -> None:
    first, second = log.initialise("first"), log.initialise("second")
    log.submit(producer.append(HERE, 0, 5))
    log.submit(first.append(HERE, 0, transaction=1))
    log.submit(second.append(HERE, 0, transaction=1))
    log.submit(producer.append(HERE, 5, 5))
    assert last_stable_offset(log.partition()) == 5
    log.submit(second.end(1))
    assert last_stable_offset(log.partition()) == 5
    log.submit(first.end(1))
    assert last_stable_offset(log.partition()) == log.partition().log_end_offset == 14


@pytest.mark.kafka("K71")
def test_a_fused_transaction_never_holds_the_last_stable_offset(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, 5, transaction=1), producer.end(1))
    assert log.partition().open_transactions == ()
    assert last_stable_offset(log.partition()) == 6


@pytest.mark.kafka("K74")
def test_k74_a_log_start_inside_an_open_transaction_bounds_it_below(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, 10, transaction=1))
    log.submit(DeleteRecords("d", *HERE, 4))
    assert last_stable_offset(log.partition()) == 4


@pytest.mark.kafka("K75")
def test_k75_an_abort_is_indexed_with_the_last_stable_offset_behind_it(log: PureLog) -> None:
    """Kafka's golden case, testTransactionIndexUpdated: [(1, 0, 29, 8), (2, 8, 74, 36)]."""
    producers = {number: log.initialise(f"id-{number}") for number in range(1, 5)}
    plain = log.initialise(None)
    sequences = dict.fromkeys(producers, 0)

    def append(number: int, count: int) -> None:
        log.submit(producers[number].append(HERE, sequences[number], count, transaction=1))
        sequences[number] += count

    append(1, 5)
    log.submit(plain.append(HERE, 0, 3))
    append(2, 2)
    append(1, 4)
    append(3, 3)
    log.submit(plain.append(HERE, 3, 2))
    append(1, 10)
    log.submit(producers[1].end(1, committed=False))
    append(2, 6)
    append(4, 3)
    log.submit(producers[3].end(1))
    append(2, 7)
    log.submit(plain.append(HERE, 5, 10))
    append(4, 17)
    log.submit(producers[2].end(1, committed=False))
    ids = {number: producer.producer_id for number, producer in producers.items()}
    assert log.segments().aborted == (
        AbortedTransaction(ids[1], 0, 29, 8),
        AbortedTransaction(ids[2], 8, 74, 36),
    )


@pytest.mark.kafka("K75")
def test_k75_a_commit_is_not_indexed(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1), producer.end(1))
    assert log.segments().aborted == ()


OTHER = segment_file(0, "0" * 20, "arrow")


def test_a_batch_with_the_sequences_of_another_is_no_repetition_if_it_names_another_segment(log: PureLog) -> None:
    producer = log.initialise(None)
    log.submit(producer.append(HERE, 0, 5))
    assert log.submit(producer.append(HERE, 0, 5))[0].duplicate
    assert log.refusal(producer.append(HERE, 0, 5, segment=OTHER)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("counts", [[8], [1] * 8, [4, 4], [2, 6]])
@pytest.mark.parametrize("prepared", [False, True])
def test_a_list_after_the_end_is_a_repetition_only_if_it_names_what_is_stored(
    log: PureLog, counts: list[int], prepared: bool
) -> None:
    """Eight batches were stored, of which five are remembered; the others say nothing of what they named."""
    producer = log.initialise("job")
    last = producer.prepare(1) if prepared else producer.end(1)
    stored = [producer.append(HERE, sequence, transaction=1) for sequence in range(8)] + [last]
    log.submit(*stored)
    assert all(result.duplicate for result in log.submit(*stored))
    others = []
    for number, count in enumerate(counts):
        segment = segment_file(0, f"{number:020}", "arrow")
        others.append(producer.append(HERE, sum(counts[:number]), count, transaction=1, segment=segment))
    assert log.refusal(*others, last) == ErrorCode.INVALID_TXN_STATE
    assert log.refusal(others[0], last) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 2**28 + 1},
        {"size_bytes": 2**31 + 1},
        {"producer_epoch": 32_768},
        {"timestamp_max_ms": (2**63 - 1) // 1_000 + 1},
        {"base_sequence": 2**31},
    ],
)
def test_numbers_that_no_reader_or_sidecar_can_hold_are_refused(log: PureLog, producer, changes) -> None:
    assert log.refusal(replace(producer.append(HERE, 0), **changes)) == ErrorCode.INVALID_RECORD


def test_offsets_end_where_control_records_still_find_their_place(log: PureLog, producer) -> None:
    log.records["partition", *HERE] = replace(log.partition(), log_end_offset=2**62 - 1)
    assert log.refusal(producer.append(HERE, 0, 2)) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.submit(producer.append(HERE, 0, 1))
    assert log.partition().log_end_offset == 2**62


def test_a_file_of_a_rewrite_is_no_new_segment(log: PureLog, producer) -> None:
    """Its rows have offsets of their own, which readers would take for those of the append."""
    command = replace(producer.append(HERE, 0), segment=merged_segment_file(0, "0" * 20))
    assert log.refusal(command) == ErrorCode.INVALID_RECORD


def test_records_that_an_append_carries_need_no_file(log: PureLog, producer: ProducerCommands) -> None:
    """No vacuum deletes the entry that is about to carry them, whatever it has deleted before."""
    log.submit(Vacuum(1, 1))
    log.submit(producer.append(HERE, 0, data=b"records"))
    (placed,) = log.segments().segments
    assert (placed.size_bytes, placed.entry) == (7, log.entry)
    assert is_inline(placed.name)


def test_only_an_inline_segment_has_records_in_its_command(log: PureLog, producer: ProducerCommands) -> None:
    carried = producer.append(HERE, 0, data=b"records")
    for wrong in (replace(carried, data=b""), replace(carried, segment=producer.append(HERE, 0).segment)):
        with pytest.raises(CommandRefused, match=r"has a name that ends with \.inline without inline records, or such"):
            log.submit(wrong)
