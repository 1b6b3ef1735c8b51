"""Each checker of clients' histories accepts a sound one, and rejects each way of breaking its guarantee."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.simulation import clientcheckers as checkers
from tests.simulation.clienthistory import (
    Batch,
    ClientHistory,
    Committed,
    Delivery,
    Place,
    Range,
    Record,
    Request,
    Transaction,
)
from tests.simulation.cycles import check_cycles, components
from tests.simulation.history import Outcome

pytestmark = pytest.mark.simulation

LEFT: Place = ("left", 1, 0)
RIGHT: Place = ("right", 2, 0)
OUT: Place = ("out", 3, 0)


def sent(name: str, *places: Place, outcome: Outcome = Outcome.COMMITTED, **members: object) -> Transaction:
    """A transaction with one record for each place, asked to end at moment 10."""
    transaction = Transaction(name, name.rstrip("0123456789"), name.rstrip("0123456789"), outcome=outcome, ending=10)
    transaction.sent = [(place[0], place[2], f"{name}.{number}<") for number, place in enumerate(places)]
    for member, value in members.items():
        setattr(transaction, member, value)
    return transaction


def batch(
    *records: tuple[Place, int, str],
    entry: int = 9,
    reader: str = "reader",
    committed: bool = True,
    whole: bool = True,
    ended: int = 20,
    end: int = 10,
    stable: int = 10,
    start: int = 0,
    to_entry: int = -1,
) -> Batch:
    places = dict.fromkeys([LEFT, RIGHT, OUT], Range(0, end, start, stable, max(end, stable)))
    given = tuple(Record(*record) for record in records)
    return Batch(reader, entry, committed, whole, 15, ended, places, given, to_entry)


A = ((LEFT, 0, "a1.0<"), (RIGHT, 0, "a1.1<"))
B = ((LEFT, 2, "b1.0<"), (RIGHT, 2, "b1.1<"))
COPY = ((OUT, 0, "c1.0<a1.0<"),)


def history(
    *transactions: Transaction,
    final: tuple[tuple[Place, int, str], ...] = (*A, *B, *COPY),
    batches: tuple[Batch, ...] = (),
    dirty: tuple[tuple[Place, int, str], ...] | None = None,
) -> ClientHistory:
    """Two writers, and a group that has copied the first record; `transactions` replace those of their name."""
    copier = sent("c1", OUT, inputs=["a1.0<"], offsets={("copies", "left", 0): 1})
    copier.sent = [("out", 0, "c1.0<a1.0<")]
    known = {"a1": sent("a1", LEFT, RIGHT), "b1": sent("b1", LEFT, RIGHT), "c1": copier}
    known |= {transaction.name: transaction for transaction in transactions}
    return ClientHistory(
        transactions=list(known.values()),
        batches=list(batches),
        final=[
            batch(*final, reader="final", entry=20, ended=99),
            batch(*(dirty if dirty is not None else final), reader="final", entry=20, ended=99, committed=False),
        ],
        offsets=[Committed("copies", "left", 0, 1)],
    )


def rejected(check: Callable[[ClientHistory], None], wrong: ClientHistory, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        check(wrong)


def test_a_sound_history_is_accepted() -> None:
    checkers.check_client_history(history(batches=(batch(*A, *B, *COPY), batch(*A, *B, *COPY, entry=12))))


def test_what_nobody_decided_may_be_there_or_not() -> None:
    unknown = sent("d1", LEFT, outcome=Outcome.UNKNOWN)
    checkers.check_client_history(history(unknown))
    checkers.check_client_history(history(unknown, final=(*A, *B, *COPY, (LEFT, 4, "d1.0<"))))


def test_a_lost_write_is_rejected() -> None:
    rejected(checkers.check_lost_writes, history(final=(*A, B[0], *COPY)), r"b1\.1< of b1 was acknowledged")


def test_what_a_deleted_topic_or_a_trimmed_log_held_is_not_lost() -> None:
    gone = history(final=(A[0], B[0], *COPY))
    gone.deleted_topics = {"right"}
    checkers.check_client_history(gone)
    trimmed = history(final=(A[0], *B, *COPY), batches=(batch(*A, *B, *COPY),))
    trimmed.trimmed_topics = {"right"}
    rejected(checkers.check_lost_writes, trimmed, "a1.1<")
    trimmed.final = [
        replace(view, ranges={**view.ranges, RIGHT: replace(view.ranges[RIGHT], log_start_offset=1)})
        for view in trimmed.final
    ]
    checkers.check_lost_writes(trimmed)


@pytest.mark.parametrize("place", [("left", 0, 1), ("right", 0, 0)])
def test_a_delivery_report_that_is_not_true_is_rejected(place: tuple[str, int, int]) -> None:
    told = history()
    told.deliveries = [Delivery("a1.0<", "left", 0, 0)]
    checkers.check_acknowledged(told)
    told.deliveries = [Delivery("a1.0<", *place)]
    rejected(checkers.check_acknowledged, told, r"a1\.0< was delivered at .* and is at \('left', 0, 0\)")
    told.deliveries = [Delivery("nowhere", *place)]
    rejected(checkers.check_acknowledged, told, "nowhere was delivered at .* and is at None")


def test_an_acknowledged_request_that_is_not_in_the_log_is_rejected() -> None:
    asked = history()
    asked.requests = [Request("offset commit", "mark 0;", "client", Outcome.COMMITTED)]
    rejected(checkers.check_acknowledged, asked, "mark 0; of client was acknowledged and is not in the log")
    asked.marks = {"mark 0;": 7}
    checkers.check_client_history(asked)


def test_what_was_reported_as_failed_and_happens_is_rejected() -> None:
    asked = history()
    asked.requests = [Request("offset commit", "mark 0;", "client", Outcome.REFUSED)]
    checkers.check_client_history(asked)
    asked.marks = {"mark 0;": 7}
    rejected(checkers.check_reported_failures, asked, "mark 0; of client was reported as failed and is entry 7")
    failed = sent("d1", LEFT, outcome=Outcome.REFUSED)
    checkers.check_client_history(history(failed))
    rejected(
        checkers.check_reported_failures,
        history(failed, dirty=(*A, *B, *COPY, (LEFT, 4, "d1.0<"))),
        r"d1\.0< of d1 was reported as failed, and final read it at 4",
    )


def test_what_is_begun_after_its_client_has_let_go_of_it_is_rejected() -> None:
    asked = history()
    asked.requests = [Request("init_transactions", "mark 0;", "process's client", let_go=20)]
    asked.offered = {"mark 0;": {"process": 20, "other": 30}}
    checkers.check_client_history(asked)
    asked.offered = {"mark 0;": {"process": 21}}
    rejected(checkers.check_let_go, asked, "was let go of at 20, and its process has offered it to the log at 21")
    asked.requests[0].let_go = -1
    checkers.check_client_history(asked)
    closed = history(sent("b1", LEFT, RIGHT, let_go=20))
    closed.offered = {"b1.1<": {"b": 21}}
    rejected(checkers.check_let_go, closed, r"b1\.1< of b was let go of at 20")


def test_a_group_that_is_held_up_for_good_is_rejected() -> None:
    held = history()
    held.draining = {"copies": "right"}
    rejected(checkers.check_drained, held, r"group copies never put Record\(.*'a1\.1<'\) out")
    both = sent("c2", OUT, offsets={("copies", "left", 0): 3})
    both.sent = [("out", 0, "c2.0<b1.0<")]
    drained = history(both, final=(*A, *B, *COPY, (OUT, 2, "c2.0<b1.0<")))
    drained.draining = {"copies": "left"}
    checkers.check_drained(drained)


@pytest.mark.parametrize("offset", [4, 0])
def test_a_duplicate_is_rejected(offset: int) -> None:
    rejected(checkers.check_duplicates, history(final=(*A, *B, (RIGHT, offset, "a1.0<"))), "twice")


def test_a_value_that_moves_is_rejected() -> None:
    rejected(checkers.check_duplicates, history(batches=(batch((LEFT, 1, "a1.0<"), A[1]),)), r"a1\.0< is at")


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.REFUSED])
def test_g1a_an_aborted_read_is_rejected(outcome: Outcome) -> None:
    aborted = sent("d1", LEFT, outcome=outcome)
    read = batch(*A, *B, *COPY, (LEFT, 4, "d1.0<"))
    rejected(checkers.check_aborted_reads, history(aborted, batches=(read,)), f"was {outcome.value}")
    checkers.check_aborted_reads(history(aborted, batches=(replace(read, committed=False),)))


def test_a_value_that_nobody_sent_is_rejected() -> None:
    rejected(checkers.check_aborted_reads, history(batches=(batch((LEFT, 5, "x"), entry=9),)), "no producer sent")


def test_g1b_a_torn_transaction_is_rejected() -> None:
    torn = batch(*A, B[0], *COPY)
    rejected(checkers.check_torn_transactions, history(batches=(torn,)), r"read b1 without b1\.1<")
    checkers.check_torn_transactions(history(batches=(replace(torn, whole=False),)))


def test_a_reader_in_commit_order_that_skips_a_transaction_is_rejected() -> None:
    known = {name: sent(name, LEFT, RIGHT, entry=entry) for name, entry in (("a1", 4), ("b1", 7))}
    steps = (batch(*A, to_entry=4), batch(*B, to_entry=9))
    checkers.check_client_history(history(*known.values(), batches=steps))
    checkers.check_skipped_commits(history(*known.values(), batches=steps[:1]))
    skipped = (steps[0], batch(B[0], to_entry=9))
    rejected(checkers.check_skipped_commits, history(*known.values(), batches=skipped), r"entry 9 without b1\.1<")


def test_a_reader_in_commit_order_that_reads_a_record_again_is_rejected() -> None:
    steps = (batch(*A, to_entry=4), batch(A[0], *B, to_entry=9))
    rejected(checkers.check_skipped_commits, history(batches=steps), r"read .*a1\.0<.* again")


def test_a_read_past_the_last_stable_offset_is_rejected() -> None:
    read = batch(*A, *B, *COPY, end=3, stable=2)
    rejected(checkers.check_isolation, history(batches=(read,)), "past the last stable offset")
    # In commit order what is committed is read wherever it lies.
    checkers.check_isolation(history(batches=(replace(read, to_entry=9),)))


def test_a_read_outside_its_range_is_rejected() -> None:
    rejected(checkers.check_isolation, history(batches=(batch(*A, *B, end=2),)), "out of range")


def test_a_read_before_the_commit_was_asked_for_is_rejected() -> None:
    rejected(checkers.check_isolation, history(batches=(batch(*A, ended=9),)), "before the commit")
    never = sent("a1", LEFT, RIGHT, outcome=Outcome.UNKNOWN, ending=-1)
    rejected(checkers.check_isolation, history(never, batches=(batch(*A),)), "before the commit")


def test_a_committed_read_that_is_taken_back_is_rejected() -> None:
    unknown = sent("d1", LEFT, outcome=Outcome.UNKNOWN)
    read = batch(*A, *B, *COPY, (LEFT, 4, "d1.0<"))
    rejected(checkers.check_isolation, history(unknown, batches=(read,)), "not committed at the end")


def test_records_of_one_process_out_of_order_are_rejected() -> None:
    later = sent("a2", LEFT, process="a")
    wrong = history(later, final=((LEFT, 3, "a1.0<"), A[1], (LEFT, 1, "a2.0<")))
    rejected(checkers.check_order, wrong, r"a2\.0< at 1 .* was sent after a1\.0<, at 3")


def test_a_transaction_that_does_not_stand_where_it_expected_is_rejected() -> None:
    def expecting(offset: int, outcome: Outcome = Outcome.COMMITTED) -> ClientHistory:
        return history(sent("b1", LEFT, RIGHT, outcome=outcome, expected={("left", 0): offset}))

    checkers.check_expectations(expecting(2))
    checkers.check_expectations(expecting(1, Outcome.ABORTED))
    rejected(checkers.check_expectations, expecting(1), r"b1\.0< is at 2, and it expected 1")


def test_a_row_that_is_committed_below_a_later_one_is_rejected_in_a_keyed_topic() -> None:
    first, second = batch(B[0], to_entry=5), batch(A[0], to_entry=6)
    for keyed, batches in ((set(), (first, second)), ({"left"}, (second, first))):
        seen = history(batches=batches)
        seen.keyed_topics = frozenset(keyed)
        checkers.check_keyed_order(seen)
    wrong = history(batches=(first, second))
    wrong.keyed_topics = frozenset({"left"})
    rejected(checkers.check_keyed_order, wrong, "was committed after")
    again = history(batches=(first, replace(second, from_the_beginning=True)))
    again.keyed_topics = frozenset({"left"})
    checkers.check_keyed_order(again)


def test_an_open_row_of_a_keyed_topic_is_rejected() -> None:
    seen = history(batches=(batch(stable=2),))
    checkers.check_keyed_order(seen)
    seen.keyed_topics = frozenset({"left"})
    rejected(checkers.check_keyed_order, seen, "open rows")


def test_a_reader_that_goes_back_is_rejected() -> None:
    rejected(checkers.check_order, history(batches=(batch(B[0], A[0]),)), "after offset 2")


def test_an_offset_that_changes_is_rejected() -> None:
    read = batch((LEFT, 0, "b1.0<"))
    rejected(checkers.check_stable_offsets, history(batches=(read,)), r"offset 0 .* held b1\.0<, then a1\.0<")


def test_a_gap_is_rejected() -> None:
    unknown = sent("d1", LEFT, LEFT, LEFT, outcome=Outcome.UNKNOWN)
    there = ((LEFT, 4, "d1.0<"), (LEFT, 5, "d1.2<"))
    rejected(checkers.check_gaps, history(unknown, dirty=(*A, *B, *COPY, *there)), "left a gap")
    checkers.check_gaps(history(unknown, dirty=(*A, *B, *COPY, (LEFT, 4, "d1.0<"), (LEFT, 5, "d1.1<"))))


def test_a_record_that_a_reader_went_over_is_rejected() -> None:
    rejected(checkers.check_skipped_reads, history(batches=(batch(*A, *COPY),)), "went over")


def test_output_twice_for_one_input_is_rejected() -> None:
    again = sent("c2", OUT, inputs=["a1.0<"], offsets={("copies", "left", 0): 1})
    again.sent = [("out", 0, "c2.0<a1.0<")]
    wrong = history(again, final=(*A, *B, *COPY, (OUT, 2, "c2.0<a1.0<")))
    rejected(checkers.check_group_offsets, wrong, "twice")


@pytest.mark.parametrize(("offset", "match"), [(0, "put out without it {'a1"), (3, "not put out {'b1")])
def test_offsets_without_their_output_and_output_without_offsets_are_rejected(offset: int, match: str) -> None:
    wrong = history()
    wrong.offsets = [Committed("copies", "left", 0, offset)]
    rejected(checkers.check_group_offsets, wrong, match)


def test_views_that_go_back_are_rejected() -> None:
    newer, older = batch(entry=8, end=0), batch(entry=7, end=0)
    rejected(checkers.check_monotonic_views, history(batches=(newer, older)), "entry 7 after 8")
    fallen = batch(entry=9, end=0, stable=4)
    rejected(checkers.check_monotonic_views, history(batches=(newer, fallen)), "fall from 10 to 4")


def test_a_view_older_than_what_was_acknowledged_is_rejected() -> None:
    told = sent("a1", LEFT, RIGHT, told=14, entry=10)
    rejected(checkers.check_monotonic_views, history(told, batches=(batch(entry=9),)), "entry 9 after entry 10 was ack")
    checkers.check_monotonic_views(history(replace(told, told=16), batches=(batch(entry=9),)))


def test_g0_a_cycle_of_writes_is_rejected() -> None:
    crossed = ((LEFT, 0, "a1.0<"), (LEFT, 2, "b1.0<"), (RIGHT, 0, "b1.1<"), (RIGHT, 2, "a1.1<"))
    rejected(check_cycles, history(final=crossed), "G0, a cycle of writes: a1 -ww-> b1, b1 -ww-> a1")


def test_transactions_that_published_early_may_cross_each_other() -> None:
    crossed = ((LEFT, 0, "a1.0<"), (LEFT, 2, "b1.0<"), (RIGHT, 0, "b1.1<"), (RIGHT, 2, "a1.1<"))
    check_cycles(history(sent("a1", LEFT, RIGHT, fused=False), final=crossed))


def test_g1c_a_cycle_of_writes_and_reads_is_rejected() -> None:
    first, second = sent("d1", LEFT, inputs=["e1.0<"]), sent("e1", RIGHT, inputs=["d1.0<"])
    final = (*A, *B, *COPY, (LEFT, 4, "d1.0<"), (RIGHT, 4, "e1.0<"))
    rejected(check_cycles, history(first, second, final=final), "G1c, .* d1 -wr-> e1, e1 -wr-> d1")
    reads_later = sent("e1", LEFT, inputs=[])
    reader = sent("d1", LEFT, inputs=["e1.0<"])
    mixed = (*A, *B, *COPY, (LEFT, 4, "d1.0<"), (LEFT, 6, "e1.0<"))
    rejected(check_cycles, history(reads_later, reader, final=mixed), "G1c, .* d1 -ww-> e1, e1 -wr-> d1")


def test_components_are_found_in_long_chains() -> None:
    chain = {str(number): [str(number + 1)] for number in range(20_000)}
    assert components(chain) == []
    assert [sorted(found, key=int) for found in components({**chain, "20000": ["19998"]})] == [
        ["19998", "19999", "20000"]
    ]
    assert components({"a": ["a"], "b": ["a"]}) == [["a"]]
