"""Compares what killed and paused processes noted in their journals with what the store holds in the end.

`check_journals` returns sentences, one per broken guarantee; an empty list means that all
hold. It knows nothing of segments or entries: it sees records, group offsets and notes, as an application would.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from tests.crash.chaos_workload import INPUTS, OUTPUT

__all__ = ["Evidence", "Note", "check_journals", "notes_of"]

Note = dict[str, Any]
Place = tuple[str, int]


class Evidence(NamedTuple):
    """The committed records as (topic, partition) → [(offset, value)], the groups' offsets, and the notes.

    `entries` are those that have committed the records, by topic, partition and offset. `progress` is a writer's own
    offset, `consumed` the transformer's per partition of `orders`. `notes` are by worker and incarnation, in the order
    in which they were written.
    """

    records: Mapping[Place, Sequence[tuple[int, dict[str, Any]]]]
    entries: Mapping[tuple[str, int, int], int]
    progress: Mapping[str, int]
    consumed: Mapping[int, int]
    notes: Mapping[tuple[str, int], Sequence[Note]]


def notes_of(folder: Path) -> dict[tuple[str, int], list[Note]]:
    """All journals of a folder; what a killed process wrote of its last line is left out."""
    found: dict[tuple[str, int], list[Note]] = {}
    for path in sorted(folder.glob("*.journal")):
        name, incarnation, _ = path.name.rsplit(".", 2)
        whole = path.read_bytes().rpartition(b"\n")[0]
        found[name, int(incarnation)] = [json.loads(line) for line in whole.splitlines()]
    return found


def check_journals(evidence: Evidence) -> list[str]:
    """What is broken."""
    return [
        *_order(evidence),
        *_acknowledged(evidence),
        *_whole(evidence),
        *_exactly_once(evidence),
        *_copied_once(evidence),
        *_views(evidence),
    ]


def _written(evidence: Evidence) -> dict[str, list[tuple[Place, int, dict[str, Any]]]]:
    """The committed records of the writers by attempt."""
    found: dict[str, list[tuple[Place, int, dict[str, Any]]]] = defaultdict(list)
    for place, records in evidence.records.items():
        if place[0] in INPUTS:
            for offset, value in records:
                found[value["attempt"]].append((place, offset, value))
    return found


def _told(evidence: Evidence, what: str) -> Iterator[tuple[str, int, Note]]:
    for (name, incarnation), notes in evidence.notes.items():
        for note in notes:
            if note["what"] == what:
                yield name, incarnation, note


def _order(evidence: Evidence) -> Iterator[str]:
    """Offsets grow; a writer's records keep their order; an older epoch writes nothing after a newer one.

    The epoch decides, not the incarnation: one that was paused before it asked for its epoch is the newer producer.
    """
    for place, records in evidence.records.items():
        offsets = [offset for offset, _ in records]
        if offsets != sorted(set(offsets)):
            yield f"order: offsets of {place} are not in order"
        if place[0] == OUTPUT:
            continue
        newest: dict[str, tuple[int, int, int, int]] = {}
        for offset, value in records:
            name, _, run = value["attempt"].split("/")
            position = (*value["by"], int(run.split(".")[1]), value["number"])
            if position <= newest.get(name, (-1, -1, -1, -1)):
                yield f"order or fencing: {value} at {place} offset {offset} comes after {newest[name]} of {name}"
            newest[name] = position


def _acknowledged(evidence: Evidence) -> Iterator[str]:
    """What was acknowledged is there; what was said to be aborted is not."""
    written = _written(evidence)
    copied = {value["attempt"] for place, rows in evidence.records.items() if place[0] == OUTPUT for _, value in rows}
    for name, _, note in _told(evidence, "committed"):
        if note["attempt"] not in written and note["attempt"] not in copied:
            yield f"lost write: {name} was told that {note['attempt']} is committed"
    for name, _, note in _told(evidence, "aborted"):
        if note["attempt"] in written:
            yield f"aborted read: {name} was told that {note['attempt']} is aborted, and it is in the log"


def _whole(evidence: Evidence) -> Iterator[str]:
    """A transaction is there with all its records over topics and partitions, each once, or not at all."""
    for attempt, rows in _written(evidence).items():
        numbers = sorted(value["number"] for _, _, value in rows)
        if numbers != list(range(rows[0][2]["of"])):
            yield f"torn transaction: {attempt} has the records {numbers} of {rows[0][2]['of']}"
    copies: dict[str, list[int]] = defaultdict(list)
    for place, records in evidence.records.items():
        if place[0] == OUTPUT:
            for _, value in records:
                copies[value["attempt"]].append(value["of"])
    for attempt, of in copies.items():
        if len(of) != of[0]:
            yield f"torn transaction: {attempt} has {len(of)} records of {of[0]}"


def _exactly_once(evidence: Evidence) -> Iterator[str]:
    """Each writer's batches are there once each, as many as its own offset says."""
    batches: dict[str, list[int]] = defaultdict(list)
    for attempt in _written(evidence):
        name, batch, _ = attempt.split("/")
        batches[name].append(int(batch))
    for name, found in batches.items():
        done = evidence.progress.get(name, 0)
        if sorted(found) != list(range(done)):
            yield f"exactly once: {name} has committed {done} batches, and the log has {sorted(found)}"
    for name, done in evidence.progress.items():
        if done and name not in batches:
            yield f"lost write: {name} has committed {done} batches, and the log has none"


def _copied_once(evidence: Evidence) -> Iterator[str]:
    """The output holds each record of the input below the group's offset once, in order, and nothing else."""
    for partition in range(INPUTS["orders"]):
        orders = dict(evidence.records.get(("orders", partition), ()))
        copies = [value for _, value in evidence.records.get((OUTPUT, partition), ())]
        found = [value["source"]["offset"] for value in copies]
        expected = sorted(offset for offset in orders if offset < evidence.consumed.get(partition, 0))
        if found != expected:
            yield (
                f"group offsets against output: partition {partition} was read up to "
                f"{evidence.consumed.get(partition, 0)}, missing {sorted(set(expected) - set(found))[:5]}, "
                f"unexpected {sorted(set(found) - set(expected))[:5]}, {len(found)} copies of {len(expected)}"
            )
        for value in copies:
            if orders.get(value["source"]["offset"]) != value["copy"]:
                yield f"offsets that change: {value['source']} was read as {value['copy']}"


def _views(evidence: Evidence) -> Iterator[str]:
    """Every view shows what stays in the store, whole transactions, and all that was acknowledged before it."""
    attempts = {
        attempt: max(evidence.entries.get((*place, offset), 0) for place, offset, _ in rows)
        for attempt, rows in _written(evidence).items()
    }
    acknowledged = sorted((note["ns"], note["attempt"]) for _, _, note in _told(evidence, "committed"))
    newest: dict[str, int] = defaultdict(int)
    checked: dict[str, int] = defaultdict(int)
    committed = _by_entry(evidence)
    for name, incarnation, note in sorted(_told(evidence, "saw"), key=lambda told: (told[0], told[1], told[2]["ns"])):
        where = f"the view of {name}.{incarnation} at entry {note['entry']}"
        if note["entry"] < newest[name]:
            yield f"non-monotonic views: {where} comes after one at entry {newest[name]}"
        newest[name] = note["entry"]
        seen = {(topic, partition, offset): json.loads(value) for topic, partition, offset, value in note["rows"]}
        first, last = (bisect_right(committed, entry, key=itemgetter(0)) for entry in (note["after"], note["entry"]))
        expected = {key: value for _, key, value in committed[first:last]}
        if seen != expected or len(note["rows"]) > len(seen):
            differ = [key for key in {*seen, *expected} if seen.get(key) != expected.get(key)]
            yield f"offsets that change, or reads of what is not committed: {where} differs at {sorted(differ)[:5]}"
        counts: dict[str, int] = defaultdict(int)
        for value in seen.values():
            counts[value["attempt"]] += 1
        for value in seen.values():
            if counts[value["attempt"]] != value["of"]:
                yield f"torn transaction: {where} has {counts[value['attempt']]} records of {value}"
                break
        # The views of one worker grow, so that each is checked for what was acknowledged since the one before.
        while checked[name] < len(acknowledged) and acknowledged[checked[name]][0] <= note["began_ns"]:
            attempt = acknowledged[checked[name]][1]
            checked[name] += 1
            if attempts.get(attempt, 0) > note["entry"]:
                yield f"stale view: {where} began after {attempt} was acknowledged, at entry {attempts[attempt]}"
                break


def _by_entry(evidence: Evidence) -> list[tuple[int, tuple[str, int, int], dict[str, Any]]]:
    """The records with the entries that have committed them, in their order."""
    found = [
        (evidence.entries.get((*place, offset), 0), (*place, offset), value)
        for place, records in evidence.records.items()
        for offset, value in records
    ]
    return sorted(found, key=itemgetter(0))
