"""Topics that are published as tables: the histories meet what they are for, and find builds without the rules."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import PublishTables, TableToPublish
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.state import tables
from sparktxn._engine.state.delta import Delta, Refusal
from sparktxn._foundation.values.structs import TableState, TopicState
from sparktxn._rows.tableformats import delta, iceberg
from sparktxn._rows.tableformats.deltacheckpoint import CommitInfo
from sparktxn._rows.tableformats.version import TableVersion
from sparktxn.errors import DamagedObject
from sparktxn.maintenance.publishing import publish, tableobjects
from sparktxn.maintenance.publishing import tablemetadata as metadata
from tests.simulation.fibers import current_fiber
from tests.simulation.scenarios import record_published, simulate
from tests.simulation.simulator import Process
from tests.simulation.test_coverage import happened

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch

EXPECTED = {"PublishTables", "Rewrite", "compaction", "DeleteTopic", "DeleteRecords", "Vacuum", "commit", "abort"}
EXPECTED |= {"a publication in pieces", "a copy with versions of the store", "a new column"}
EXPECTED |= {"metadata deleted", "two writers of one version", "versions of one entry", "die before"}


def test_publishers_meet_what_the_scenario_is_for() -> None:
    met: Counter[str] = Counter()
    # The first ones meet everything; others do if histories have changed.
    for seed in dict.fromkeys((0, 19, 20, *range(40))):
        simulator, _, engine = record_published(seed)
        met += happened(simulator) + simulator.injected + engine.met
        gone = simulator.shared.history.keys() - simulator.shared.objects.keys()
        met["metadata deleted"] += sum(name.endswith(".metadata.json") for name in gone)
        entries = Counter(seen.published_entry for seen in engine.seen.values())
        met["versions of one entry"] += sum(times > 1 for times in entries.values())
        met["two writers of one version"] += any(
            len(by) > 1 for offers in simulator.described.values() for by in offers.values()
        )
        if all(met[what] for what in EXPECTED):
            return
    raise AssertionError(f"no history meets {[what for what in EXPECTED if not met[what]]}")


def without_checked_entries(patch: Patch) -> None:
    """A version may have what an entry above its own has committed: neither the publisher nor the log looks.

    The publisher writes what is committed a moment after it has chosen the entry.
    """
    outdated = tables._outdated

    def younger(
        known: Delta, wanted: TableToPublish, table: TableState | None, topic: TopicState | None, command: PublishTables
    ) -> Refusal | None:
        refusal = outdated(known, wanted, table, topic, command)
        if refusal is None or "has records of entry" not in refusal.reason:
            return refusal
        return outdated(known, wanted, table, topic, replace(command, entry=command.planned_entry))

    def is_sound(self: Any, known: Any, view: ReadView, entry: int) -> bool:
        return sound(self, known, view, view.entry)

    def choose(self: Any) -> Any:
        entry = chosen(self).entry
        return chosen(self)._replace(entry=entry)

    sound, chosen = publish.PublishJob._is_sound, publish.PublishJob._choose
    patch.setattr(publish.PublishJob, "_choose", choose)
    patch.setattr(tables, "_outdated", younger)
    patch.setattr(publish.PublishJob, "_is_sound", is_sound)


def without_kept_versions(patch: Patch) -> None:
    """A vacuum goes past the entries of older versions that can still be read."""
    vacuum = sys.modules["sparktxn.maintenance.vacuuming.vacuum"]
    patch.setattr(vacuum, "needed_entries", lambda _, tables: [(table, None) for table in tables])


def without_canonical_bytes(patch: Patch) -> None:
    """Metadata says which process has written it."""
    commit_info, summary = delta._commit_info, iceberg._summary

    def writer() -> str:
        fiber = current_fiber()
        return cast("Process", fiber.owner).name if fiber is not None else "at rest"

    def signed_info(version: TableVersion) -> CommitInfo:
        return replace(commit_info(version), engine_info=writer())

    def signed_summary(version: TableVersion, previous: Mapping[str, Any] | None) -> dict[str, str]:
        return summary(version, previous) | {"writer": writer()}

    patch.setattr(delta, "_commit_info", signed_info)
    patch.setattr(iceberg, "_summary", signed_summary)


def without_all_pieces(patch: Patch) -> None:
    """A publication that goes on later publishes after its first piece."""
    patch.setattr(publish._Begun, "is_complete", property(lambda _: True, lambda *_: None), raising=False)


def without_hints_that_stay(patch: Patch) -> None:
    """A publisher leaves a hint as it is, and a vacuum asks for none before it deletes what one names."""

    def hint_once(self: Any, number: int) -> None:
        if self._get(delta.LAST_CHECKPOINT) is None:
            hint(self, number)

    hint = metadata._Delta._hint
    patch.setattr(metadata._Delta, "_hint", hint_once)
    patch.setattr(tableobjects, "_hint_stays", lambda *_: True)
    patch.setattr(tableobjects, "_hinted_checkpoint", lambda *_: None)


FOUND: list[tuple[Callable[[Patch], None], tuple[int, ...], str]] = [
    (without_checked_entries, (38, 68), "without .*, with|does not show all"),
    (without_kept_versions, (68,), "does not exist"),
    (without_all_pieces, (0, 8), "without .*, with|is not what readers read"),
    (without_hints_that_stay, (2,), "names version"),
    (without_canonical_bytes, (9,), "other bytes|damaged|does not say what the log says"),
]
"""A build, seeds that find it, and what is then said. Others find it if histories have changed."""


@pytest.mark.parametrize(("without", "seeds", "says"), [pytest.param(*found, id=found[0].__name__) for found in FOUND])
def test_the_simulator_finds_a_build_without_the_rule(
    monkeypatch: Patch, without: Callable[[Patch], None], seeds: tuple[int, ...], says: str
) -> None:
    without(monkeypatch)
    # By a checker, or by a publisher that finds other metadata in the end.
    with pytest.raises((AssertionError, DamagedObject), match=says):
        _simulate_all(seeds)


def _simulate_all(seeds: Iterable[int]) -> None:
    for seed in dict.fromkeys((*seeds, *range(150))):
        simulate(seed, "published", traced=False)
