"""All scenarios by name: one seed is one history, which is run and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from tests.simulation.checkers import check_history, check_log
from tests.simulation.clientcheckers import check_client_history
from tests.simulation.clienthistory import ClientHistory
from tests.simulation.clientscenarios import (
    abandoned,
    administered,
    clients,
    come_to_rest,
    conditional,
    halfmessages,
    keyed,
    maintained,
    prepared,
    shared,
    unnamed,
)
from tests.simulation.clockprograms import check_clocks, clock_rates_of, clocks
from tests.simulation.commandprograms import commit, commit_and_vacuum
from tests.simulation.groupcheckers import check_groups
from tests.simulation.groupprograms import GroupHistory, group_rates_of, groups
from tests.simulation.history import History
from tests.simulation.overtakenprograms import check_overtaken, overtaken, rates_of, small_objects
from tests.simulation.simulator import FaultRates, Simulator
from tests.simulation.tablecheckers import Engine, check_tables
from tests.simulation.tableprograms import publish_at_rest, published

__all__ = [
    "CLIENT_SCENARIOS",
    "COMMAND_SCENARIOS",
    "SCENARIOS",
    "Told",
    "record",
    "record_clients",
    "record_groups",
    "record_overtaken",
    "record_published",
    "simulate",
]

COMMAND_SCENARIOS: Final[dict[str, Callable[[Simulator, History], None]]] = {
    "commit": commit,
    "vacuum": commit_and_vacuum,
}
CLIENT_SCENARIOS: Final[dict[str, Callable[[Simulator, ClientHistory], None]]] = {
    "clients": clients,
    "maintained": maintained,
    "administered": administered,
    "prepared": prepared,
    "abandoned": abandoned,
    "shared": shared,
    "unnamed": unnamed,
    "conditional": conditional,
    "halfmessages": halfmessages,
    "keyed": keyed,
}
SCENARIOS: Final = (*COMMAND_SCENARIOS, *CLIENT_SCENARIOS, "overtaken", "clocks", "groups", "published")


_LOG_CHECKED_EVERY: Final = 4


class Told(Struct, frozen=True):
    """What one history was: its trace, how much happened in it, and which faults it met."""

    trace: str
    operations: int
    entries: int
    faults: Counter[str]


def record(
    seed: int, scenario: str = "commit", *, rates: FaultRates | None = None, inline_bytes: int | None = None
) -> tuple[Simulator, History]:
    """Runs one history of commands; nothing is checked yet."""
    simulator = Simulator(seed, rates=rates, inline_bytes=inline_bytes)
    history = History()
    COMMAND_SCENARIOS[scenario](simulator, history)
    simulator.run()
    return simulator, history


def record_clients(
    seed: int, scenario: str = "clients", *, rates: FaultRates | None = None, inline_bytes: int | None = None
) -> tuple[Simulator, ClientHistory]:
    """Runs one history of clients; nothing is checked yet."""
    simulator = Simulator(seed, rates=rates, inline_bytes=inline_bytes)
    history = ClientHistory()
    CLIENT_SCENARIOS[scenario](simulator, history)
    simulator.run()
    return simulator, history


def record_groups(
    seed: int, *, rates: FaultRates | None = None, inline_bytes: int | None = None
) -> tuple[Simulator, GroupHistory]:
    """Run one history of a group's members; nothing is checked yet."""
    simulator = Simulator(seed, rates=rates or group_rates_of(seed), calm_after=1_500, inline_bytes=inline_bytes)
    history = GroupHistory()
    groups(simulator, history)
    simulator.run()
    return simulator, history


def record_overtaken(
    seed: int, *, rates: FaultRates | None = None, inline_bytes: int | None = None
) -> tuple[Simulator, History]:
    """Run one history of processes that checkpoints and vacuums overtake; nothing is checked yet."""
    simulator = Simulator(seed, rates=rates or rates_of(seed), calm_after=3_000, inline_bytes=inline_bytes)
    history = History()
    overtaken(simulator, history)
    simulator.run()
    return simulator, history


def record_published(
    seed: int, *, rates: FaultRates | None = None, inline_bytes: int | None = None
) -> tuple[Simulator, ClientHistory, Engine]:
    """Run one history of topics that are tables; nothing is checked yet but what an engine saw."""
    simulator = Simulator(seed, rates=rates, calm_after=2_500, steps_max=40_000, inline_bytes=inline_bytes)
    history = ClientHistory()
    engine = published(simulator, history)
    simulator.run()
    return simulator, history, engine


def simulate(
    seed: int,
    scenario: str = "commit",
    *,
    rates: FaultRates | None = None,
    inline_bytes: int | None = None,
    traced: bool = True,
) -> Told:
    """Runs one history and checks it; without `traced` its trace is empty, and a little time is saved.

    `inline_bytes` is up to which size records are inline, if the seed is not to draw it.

    Raises:
        AssertionError: a guarantee does not hold.
    """
    if scenario in COMMAND_SCENARIOS:
        simulator, history = record(seed, scenario, rates=rates, inline_bytes=inline_bytes)
        told = _told(simulator, history.operations, traced)
        check_history(simulator.shared, history)
        return told
    if scenario == "overtaken":
        with small_objects():
            simulator, history = record_overtaken(seed, rates=rates, inline_bytes=inline_bytes)
            told = _told(simulator, history.operations, traced)
            check_overtaken(simulator, history)
        return told
    if scenario == "clocks":
        simulator = Simulator(seed, rates=rates or clock_rates_of(seed), inline_bytes=inline_bytes)
        clocks(simulator)
        simulator.run()
        told = _told(simulator, simulator.shared.true_entries(), traced)
        check_clocks(simulator)
        return told
    if scenario == "groups":
        simulator, members = record_groups(seed, rates=rates, inline_bytes=inline_bytes)
        told = _told(simulator, members.operations, traced)
        check_groups(simulator.shared, members)
        return told
    if scenario == "published":
        simulator, seen, engine = record_published(seed, rates=rates, inline_bytes=inline_bytes)
        told = _told(simulator, seen.operations, traced)
        come_to_rest(simulator.shared, seen)
        publish_at_rest(simulator.shared, engine)
        check_tables(simulator, seen, engine)
        check_client_history(seen)
        return told
    simulator, seen = record_clients(seed, scenario, rates=rates, inline_bytes=inline_bytes)
    told = _told(simulator, seen.operations, traced)
    come_to_rest(simulator.shared, seen, simulator.offered, simulator.drawn)
    check_client_history(seen)
    if seed % _LOG_CHECKED_EVERY == 0:
        check_log(simulator.shared)
    return told


def _told(simulator: Simulator, operations: int, traced: bool) -> Told:
    return Told(simulator.trace if traced else "", operations, simulator.shared.true_entries(), simulator.injected)
