"""Checkers of what clients saw, one per guarantee: each takes recorded facts only, and raises AssertionError."""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.clienthistory import Batch, ClientHistory, Place, Record, Transaction
from tests.simulation.cycles import check_cycles
from tests.simulation.halfcheckers import check_half_messages
from tests.simulation.history import Outcome

__all__ = [
    "check_aborted_reads",
    "check_acknowledged",
    "check_client_history",
    "check_drained",
    "check_duplicates",
    "check_expectations",
    "check_gaps",
    "check_group_offsets",
    "check_isolation",
    "check_keyed_order",
    "check_let_go",
    "check_lost_writes",
    "check_monotonic_views",
    "check_order",
    "check_reported_failures",
    "check_skipped_commits",
    "check_skipped_reads",
    "check_stable_offsets",
    "check_torn_transactions",
]


def check_client_history(history: ClientHistory) -> None:
    """All of them."""
    for check in (
        check_lost_writes,
        check_acknowledged,
        check_reported_failures,
        check_let_go,
        check_duplicates,
        check_aborted_reads,
        check_torn_transactions,
        check_isolation,
        check_order,
        check_stable_offsets,
        check_gaps,
        check_skipped_reads,
        check_skipped_commits,
        check_group_offsets,
        check_drained,
        check_monotonic_views,
        check_cycles,
        check_expectations,
        check_keyed_order,
        check_half_messages,
    ):
        check(history)


def check_lost_writes(history: ClientHistory) -> None:
    """What was acknowledged is there at the end."""
    final = history.final_view(committed=True)
    values = {record.value for record in final.records}
    for transaction in history.transactions:
        if transaction.outcome is not Outcome.COMMITTED:
            continue
        for topic, partition, value in transaction.sent:
            assert value in values or history.may_be_gone(topic, partition, value, final), (
                f"{value} of {transaction.name} was acknowledged and is not in {topic} {partition}"
            )


def check_acknowledged(history: ClientHistory) -> None:
    """What a delivery report or an answer says is stored is stored: there, and as it says."""
    final = history.final_view(committed=True)
    places = {record.value: (record.place[0], record.place[2], record.offset) for record in final.records}
    for told in history.deliveries:
        said, found = (told.topic, told.partition, told.offset), places.get(told.value)
        assert found == said or history.may_be_gone(told.topic, told.partition, told.value, final), (
            f"{told.value} was delivered at {said} and is at {found}"
        )
    for request in history.requests:
        assert request.outcome is not Outcome.COMMITTED or request.mark in history.marks, (
            f"{request.what} {request.mark} of {request.client} was acknowledged and is not in the log"
        )


def check_reported_failures(history: ClientHistory) -> None:
    """What was reported as failed never happens: not for any reader, and not later."""
    for request in history.requests:
        assert request.outcome is not Outcome.REFUSED or request.mark not in history.marks, (
            f"{request.what} {request.mark} of {request.client} was reported as failed and is entry "
            f"{history.marks[request.mark]}"
        )
    by_value = history.by_value()
    for batch in history.reads():
        for record in batch.records:
            writer = by_value[record.value]
            assert writer.outcome is not Outcome.REFUSED, (
                f"{record.value} of {writer.name} was reported as failed, and {batch.reader} read it at {record.offset}"
            )


def check_let_go(history: ClientHistory) -> None:
    """What its client has let go of is not begun by its process after that."""
    for request in history.requests:
        _check_not_offered(history, request.mark, request.client, request.let_go)
    for transaction in history.transactions:
        for _, _, value in transaction.sent:
            _check_not_offered(history, value, transaction.process, transaction.let_go)


def _check_not_offered(history: ClientHistory, what: str, client: str, let_go: int) -> None:
    """A client is called after its process: "process's client"."""
    offered = history.offered.get(what, {}).get(client.partition("'s ")[0], -1)
    assert not 0 <= let_go < offered, (
        f"{what} of {client} was let go of at {let_go}, and its process has offered it to the log at {offered}"
    )


def check_duplicates(history: ClientHistory) -> None:
    """Every value was sent once, and stands at one place."""
    for batch in history.reads():
        seen: dict[str, Record] = {}
        for record in batch.records:
            other = seen.setdefault(record.value, record)
            assert other is record, f"{batch.reader} read {record.value} twice: at {other} and {record}"
    places: dict[str, tuple[Place, int]] = {}
    for batch in history.reads():
        for record in batch.records:
            where = (record.place, record.offset)
            first = places.setdefault(record.value, where)
            assert first == where, f"{record.value} is at {first} and at {where}"


def check_aborted_reads(history: ClientHistory) -> None:
    """G1a: no read_committed reader is given what was aborted, or what no producer sent."""
    by_value = history.by_value()
    for batch in history.reads():
        for record in batch.records:
            writer = by_value.get(record.value)
            assert writer is not None, f"{batch.reader} read {record}, which no producer sent"
            if batch.committed:
                assert writer.outcome not in (Outcome.ABORTED, Outcome.REFUSED), (
                    f"{batch.reader} read {record} of {writer.name}, which was {writer.outcome.value}"
                )


def check_torn_transactions(history: ClientHistory) -> None:
    """G1b: a whole batch holds all records of a transaction, over all topics and partitions, or none."""
    by_value = history.by_value()
    for batch in history.reads():
        if not (batch.committed and batch.whole):
            continue
        values = {record.value for record in batch.records}
        seen = {by_value[value].name: by_value[value] for value in sorted(values) if value in by_value}
        for transaction in seen.values():
            for topic, partition, value in transaction.sent:
                assert value in values or history.may_be_gone(topic, partition, value, batch), (
                    f"{batch.reader} at entry {batch.entry} read {transaction.name} without {value} "
                    f"in {topic} {partition}"
                )


def check_isolation(history: ClientHistory) -> None:
    """read_committed returns nothing at or past the last stable offset, and nothing before its commit was asked for.

    What it has returned once is never taken back.
    """
    by_value = history.by_value()
    final = history.final_view(committed=True)
    values = {record.value for record in final.records}
    for batch in history.batches:
        if not batch.committed:
            continue
        for place, range_ in batch.ranges.items():
            in_order = range_.end <= range_.last_stable_offset or batch.is_of_commits
            assert in_order, f"{batch.reader} read {place} past the last stable offset"
        for record in batch.records:
            range_here = batch.ranges.get(record.place)
            if range_here is not None:
                assert range_here.start <= record.offset < range_here.end, f"{batch.reader} read {record} out of range"
            writer = by_value[record.value]
            assert 0 <= writer.ending <= batch.ended, (
                f"{batch.reader} read {record} before the commit of {writer.name} was asked for"
            )
            topic, _, partition = record.place
            assert record.value in values or history.may_be_gone(topic, partition, record.value, final), (
                f"{batch.reader} read {record} of {writer.name}, which is not committed at the end"
            )


def check_order(history: ClientHistory) -> None:
    """A partition keeps the order in which one process sent, over all of its transactions."""
    places = history.places()
    last: dict[tuple[str, Place], tuple[int, str]] = {}
    for transaction in history.transactions:
        for _, _, value in transaction.sent:
            if value not in places:
                continue
            place, offset = places[value]
            key = (transaction.process, place)
            before = last.get(key, (-1, ""))
            assert offset > before[0], f"{value} at {offset} of {place} was sent after {before[1]}, at {before[0]}"
            last[key] = (offset, value)
    for batch in history.reads():
        given: dict[Place, int] = defaultdict(lambda: -1)
        for record in batch.records:
            assert record.offset > given[record.place], (
                f"{batch.reader} read {record} after offset {given[record.place]}"
            )
            given[record.place] = record.offset


def check_expectations(history: ClientHistory) -> None:
    """A transaction that has committed stands where it expected: its records follow the expected end at once."""
    offsets = {value: offset for value, (_, offset) in history.places().items()}
    for transaction in history.transactions:
        if transaction.outcome is not Outcome.COMMITTED:
            continue
        for where, end in transaction.expected.items():
            own = [value for topic, partition, value in transaction.sent if (topic, partition) == where]
            for offset, value in enumerate(own, end):
                assert offsets[value] == offset, f"{value} is at {offsets[value]}, and it expected {offset}"


def check_keyed_order(history: ClientHistory) -> None:
    """In keyed topics offset order is commit order: nothing is committed below what a reader has been given.

    So the row of a key with the greatest offset is the one that was committed last, and no row is ever open.
    """
    ends: dict[tuple[str, Place], Record] = {}
    for batch in history.reads():
        for place, seen in batch.ranges.items():
            if place[0] in history.keyed_topics:
                assert seen.last_stable_offset == seen.log_end_offset, f"{batch.reader} saw open rows in {place}"
        if not batch.is_of_commits:
            continue
        if batch.from_the_beginning:
            ends = {where: record for where, record in ends.items() if where[0] != batch.reader}
        known = dict(ends)
        for record in batch.records:
            if record.place[0] not in history.keyed_topics:
                continue
            where = (batch.reader, record.place)
            before = known.get(where)
            assert before is None or record.offset > before.offset, f"{record} was committed after {before}"
            if where not in ends or record.offset > ends[where].offset:
                ends[where] = record


def check_stable_offsets(history: ClientHistory) -> None:
    """An offset of a partition holds one record, for every reader, at all times."""
    held: dict[tuple[Place, int], str] = {}
    for batch in history.reads():
        for record in batch.records:
            value = held.setdefault((record.place, record.offset), record.value)
            assert value == record.value, f"offset {record.offset} of {record.place} held {value}, then {record.value}"


def check_gaps(history: ClientHistory) -> None:
    """Of what one transaction sent to one partition, nothing is missing before something that is there."""
    final = history.final_view(committed=False)
    values = {record.value for record in final.records}
    for transaction in history.transactions:
        sent: dict[tuple[str, int], list[str]] = defaultdict(list)
        for topic, partition, value in transaction.sent:
            sent[topic, partition].append(value)
        for (topic, partition), order in sent.items():
            there = [value in values or history.may_be_gone(topic, partition, value, final) for value in order]
            assert there == sorted(there, reverse=True), (
                f"{transaction.name} left a gap in {topic} {partition}: {order}"
            )


def check_skipped_reads(history: ClientHistory) -> None:
    """A reader is given every committed record of the offsets that it has gone over."""
    final = history.final_view(committed=True)
    by_place: dict[Place, list[Record]] = defaultdict(list)
    for record in final.records:
        by_place[record.place].append(record)
    for batch in history.reads():
        if batch.is_of_commits:
            continue
        given = set(batch.records)
        for place, range_ in batch.ranges.items():
            for record in by_place[place]:
                if range_.start <= record.offset < range_.end:
                    assert record in given, f"{batch.reader} at entry {batch.entry} went over {record} without it"


def check_skipped_commits(history: ClientHistory) -> None:
    """A reader in commit order is given each record once, and each transaction that was known at an entry it passed."""
    given: dict[str, set[str]] = defaultdict(set)
    last: dict[str, Batch] = {}
    for batch in history.batches:
        if not batch.is_of_commits:
            continue
        values = {record.value for record in batch.records}
        if batch.from_the_beginning:
            given[batch.reader] = set()
        assert not given[batch.reader] & values, f"{batch.reader} read {given[batch.reader] & values} again"
        given[batch.reader] |= values
        last[batch.reader] = batch
    for reader, batch in last.items():
        topics = {topic for topic, _, _ in batch.ranges}
        for transaction in history.transactions:
            if not _was_told(transaction) or transaction.entry > batch.to_entry:
                continue
            for topic, partition, value in transaction.sent:
                found = value in given[reader] or history.may_be_gone(topic, partition, value, batch)
                assert found or topic not in topics, f"{reader} passed entry {batch.to_entry} without {value}"


def check_group_offsets(history: ClientHistory) -> None:
    """What a group has committed as read, and only that, has been put out, once."""
    by_value = history.by_value()
    final = history.final_view(committed=True)
    values = {record.value: record for record in final.records}
    put_out: dict[str, dict[str, str]] = defaultdict(dict)
    for value in values:
        transaction = by_value[value]
        for group in {group for group, _, _ in transaction.offsets}:
            source = value.partition("<")[2]
            other = put_out[group].setdefault(source, value)
            assert other == value, f"group {group} has put {source} out twice: {other} and {value}"
    for committed in history.offsets:
        expected = {
            record.value
            for record in final.records
            if record.place[::2] == (committed.topic, committed.partition) and record.offset < committed.offset
        }
        found = {
            source
            for source in put_out[committed.group]
            if source in values and values[source].place[::2] == (committed.topic, committed.partition)
        }
        assert found == expected, f"{committed}: put out without it {found - expected}, not put out {expected - found}"


def check_drained(history: ClientHistory) -> None:
    """A group that was read to the end has put out all there is: nothing holds it up for good."""
    final = history.final_view(committed=True)
    for group, topic in history.draining.items():
        put_out = {
            record.value.partition("<")[2]
            for record in final.records
            if group in {other for other, _, _ in history.by_value()[record.value].offsets}
        }
        for record in final.records:
            assert record.place[0] != topic or record.value in put_out, f"group {group} never put {record} out"


def check_monotonic_views(history: ClientHistory) -> None:
    """A reader's views never go back, and hold whatever was acknowledged before they were asked for."""
    newest: dict[str, Batch] = {}
    for batch in history.reads():
        if batch.entry < 0:
            continue
        before = newest.get(batch.reader)
        if before is not None:
            _check_follows(before, batch)
        newest[batch.reader] = batch
        known = [told for told in history.transactions if _was_told(told) and told.told <= batch.began]
        latest = max((told.entry for told in known), default=0)
        assert batch.entry >= latest, f"{batch.reader} saw entry {batch.entry} after entry {latest} was acknowledged"


def _was_told(transaction: Transaction) -> bool:
    return transaction.outcome is Outcome.COMMITTED and transaction.entry >= 0


def _check_follows(before: Batch, batch: Batch) -> None:
    assert batch.entry >= before.entry, f"{batch.reader} saw entry {batch.entry} after {before.entry}"
    for place, range_ in batch.ranges.items():
        earlier = before.ranges.get(place)
        if earlier is None:
            continue
        for name in ("log_start_offset", "last_stable_offset", "log_end_offset"):
            now, then = getattr(range_, name), getattr(earlier, name)
            assert now >= then, f"{batch.reader} at entry {batch.entry} saw {name} of {place} fall from {then} to {now}"
