"""What a run has shown: what the store and the members contradict, and who has stood still for too long."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.liveness.program import BATCH, value_of
from tests.liveness.run import Plan, Said

__all__ = ["Outcomes", "lost_to_the_group", "outcomes", "stood_still", "wrong_in_the_store"]


class Outcomes(NamedTuple):
    """The numbers of one producer's batches, by what was answered."""

    committed: set[int]
    aborted: set[int]
    unknown: set[int]


def outcomes(said: Iterable[Said]) -> dict[str, Outcomes]:
    """Return how the batches of each producer have ended, as it knows."""
    found: dict[str, Outcomes] = defaultdict(lambda: Outcomes(set(), set(), set()))
    for each in said:
        verb, _, number = each.words.partition(" ")
        if verb in Outcomes._fields:
            getattr(found[each.client], verb).add(int(number))
    return found


def wrong_in_the_store(plan: Plan, said: Sequence[Said], stored: Sequence[Sequence[bytes]]) -> list[str]:
    """Return what is lost, doubled, torn or out of order in a topic's committed values, by partition."""
    counts = Counter(value.decode() for values in stored for value in values)
    wrong = [f"{text} is there {count} times" for text, count in counts.items() if count > 1]
    told = outcomes(said)
    numbers: dict[str, set[int]] = defaultdict(set)
    for text in counts:
        name, written, _ = text.split("/")
        numbers[name].add(int(written))
    for kind in plan.producers:
        known = told[kind.name]
        for number in sorted(known.committed | numbers[kind.name]):
            there = sum(value_of(kind.name, number, place) in counts for place in range(BATCH))
            if number in known.committed and there < BATCH:
                wrong.append(f"{BATCH - there} values of {kind.name}/{number} are lost")
            elif number in known.aborted and there:
                wrong.append(f"{there} values of {kind.name}/{number} are there, which was aborted")
            elif kind.is_transactional and there not in (0, BATCH):
                wrong.append(f"{there} of {BATCH} values of {kind.name}/{number} are there: it is torn")
    for values in stored:
        by_name: dict[bytes, list[bytes]] = defaultdict(list)
        for value in values:
            by_name[value.partition(b"/")[0]].append(value)
        wrong += [f"the values of {writer!r} changed places" for writer, own in by_name.items() if own != sorted(own)]
    return wrong


def lost_to_the_group(said: Iterable[Said], stored: Sequence[Sequence[bytes]]) -> list[str]:
    """Return what members have not read of what is committed, and what they have read that is not."""
    read = {value for each in said if each.words.startswith("read ") for value in each.words.split(" ")[2:]}
    there = {value.decode() for values in stored for value in values}
    unread, ghosts = sorted(there - read), sorted(read - there)
    return [f"{value} was never read" for value in unread] + [f"{value} was read, and is not there" for value in ghosts]


def stood_still(
    expected: Sequence[str], said: Iterable[Said], begin_s: float, end_s: float
) -> Mapping[str, tuple[float, float]]:
    """Return the longest time without a commit of each producer, and without a read of each partition.

    As (seconds, when it began), for what is `expected`, in the time between two moments.
    """
    moments: dict[str, list[float]] = {name: [begin_s] for name in expected}
    for each in said:
        verb, *words = each.words.split(" ", 2)
        name = each.client if verb == "committed" else f"partition {words[0]}" if verb == "read" else ""
        if name in moments and begin_s < each.at_s < end_s:
            moments[name].append(each.at_s)
    return {
        name: max((after - before, before) for before, after in zip(times, [*times[1:], end_s], strict=True))
        for name, times in moments.items()
    }
