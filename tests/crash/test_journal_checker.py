"""The verdict over killed processes rejects what breaks each guarantee, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.journal_checker import Evidence, check_journals

O0, O1, P0, A0 = ("orders", 0), ("orders", 1), ("payments", 0), ("audit", 0)


def value(incarnation: int, batch: int, number: int, of: int) -> dict[str, Any]:
    identity = [7, incarnation]
    attempt = f"writer-0/{batch}/{incarnation}.{batch}"
    return {"attempt": attempt, "batch": batch, "number": number, "of": of, "by": identity}


def copied(offset: int, record: dict[str, Any], of: int) -> dict[str, Any]:
    return {"source": {"partition": 0, "offset": offset}, "copy": record, "attempt": "transformer-0/0/0:0", "of": of}


def good() -> Evidence:
    """Two batches of a writer that was killed once, a copy of the first, and a view between the two."""
    first, second = [value(0, 0, number, 2) for number in range(2)], [value(1, 1, number, 2) for number in range(2)]
    records = {
        O0: [(0, first[0]), (4, second[0])],
        P0: [(0, first[1]), (2, second[1])],
        A0: [(0, copied(0, first[0], 1))],
    }
    saw = {
        "what": "saw",
        "ns": 25,
        "began_ns": 21,
        "entry": 5,
        "after": 0,
        "rows": [["orders", 0, 0, json.dumps(first[0])], ["payments", 0, 0, json.dumps(first[1])]],
    }
    notes = {
        ("writer-0", 0): [{"what": "committed", "ns": 20, "attempt": "writer-0/0/0.0"}],
        ("writer-0", 1): [{"what": "aborted", "ns": 30, "attempt": "writer-0/1/1.0"}],
        ("viewer-0", 0): [saw],
        ("transformer-0", 0): [{"what": "committed", "ns": 40, "attempt": "transformer-0/0/0:0"}],
    }
    entries = {(*O0, 0): 3, (*P0, 0): 3, (*O0, 4): 6, (*P0, 2): 6, (*A0, 0): 7}
    return Evidence(records, entries, {"writer-0": 2}, {0: 1}, notes)


def test_what_is_right_is_not_accused() -> None:
    assert check_journals(good()) == []


def drop_last_of_payments(evidence: Any) -> None:
    del evidence.records[P0][1]


def lose_a_batch(evidence: Any) -> None:
    del evidence.records[P0][0], evidence.records[O0][0]


def repeat_a_batch(evidence: Any) -> None:
    again = [{**value(1, 0, number, 2), "attempt": "writer-0/0/1.9"} for number in range(2)]
    evidence.records[O0].append((6, again[0]))
    evidence.records[P0].append((4, again[1]))


def show_an_aborted_one(evidence: Any) -> None:
    evidence.notes["writer-0", 1][0]["attempt"] = "writer-0/1/1.1"


def turn_the_order(evidence: Any) -> None:
    rows = evidence.records[O0]
    rows[0], rows[1] = (0, rows[1][1]), (4, rows[0][1])


def move_an_offset(evidence: Any) -> None:
    evidence.records[O0][0] = (1, evidence.records[O0][0][1])


def write_after_the_fence(evidence: Any) -> None:
    late = value(0, 2, 0, 1)
    evidence.records[O0].append((7, late))
    evidence.progress["writer-0"] = 3


def copy_twice(evidence: Any) -> None:
    evidence.records[A0].append((1, {**evidence.records[A0][0][1], "attempt": "transformer-0/1/0:0"}))


def forget_a_copy(evidence: Any) -> None:
    evidence.consumed[0] = 5


def tear_a_view(evidence: Any) -> None:
    del evidence.notes["viewer-0", 0][0]["rows"][1]
    evidence.entries[(*P0, 0)] = 6


def see_what_never_was(evidence: Any) -> None:
    evidence.notes["viewer-0", 0][0]["rows"].append(["orders", 0, 2, json.dumps(value(0, 9, 0, 1))])


def go_back(evidence: Any) -> None:
    evidence.notes["viewer-0", 0].append({**evidence.notes["viewer-0", 0][0], "ns": 26, "entry": 4})


def overlook_the_acknowledged(evidence: Any) -> None:
    saw = evidence.notes["viewer-0", 0][0]
    saw["rows"], saw["entry"] = [], 2


def see_a_record_twice(evidence: Any) -> None:
    rows = evidence.notes["viewer-0", 0][0]["rows"]
    rows.append(rows[0])


def leave_out_a_transaction(evidence: Any) -> None:
    evidence.notes["viewer-0", 0][0]["rows"] = []


@pytest.mark.parametrize(
    ("crime", "accusation"),
    [
        (drop_last_of_payments, "torn transaction"),
        (lose_a_batch, "lost write"),
        (repeat_a_batch, "exactly once"),
        (show_an_aborted_one, "aborted read"),
        (turn_the_order, "order or fencing"),
        (move_an_offset, "offsets that change"),
        (write_after_the_fence, "order or fencing"),
        (copy_twice, "group offsets against output"),
        (forget_a_copy, "group offsets against output"),
        (tear_a_view, "torn transaction: the view"),
        (see_what_never_was, "reads of what is not committed: the view"),
        (see_a_record_twice, "reads of what is not committed: the view"),
        (leave_out_a_transaction, "reads of what is not committed: the view"),
        (go_back, "non-monotonic views"),
        (overlook_the_acknowledged, "stale view"),
    ],
)
def test_what_breaks_a_guarantee_is_named(crime: Callable[[Any], None], accusation: str) -> None:
    evidence = copy.deepcopy(good())
    crime(evidence)
    assert any(accusation in sentence for sentence in check_journals(evidence))
