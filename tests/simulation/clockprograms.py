"""Processes whose clocks are wrong in both directions: some use transactional ids, others sweep those that are idle.

Some clocks are as wrong as is allowed, some are days or years wrong, and each may be set anew at any time. What a
process may conclude from its clock is checked by the store's clock alone, which dates each entry.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import ExpireTransactionalId, InitProducerId
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.log.log import Log
from sparktxn._foundation.config.store import StoreSettings
from sparktxn.errors import CommandRefused, OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance import sweep
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock, SeededIds, StrictBackground
from sparktxn.testing.faultystore import Fault
from tests.simulation.simulator import FaultRates, Process, Simulator

__all__ = ["check_clocks", "clock_rates_of", "clocks"]

_SKEW_MS_MAX: Final = 600_000
_SKEWS_S: Final = (0.0, 0.0, 590.0, -590.0, 86_400.0, -86_400.0, -30 * 86_400.0, 3_650 * 86_400.0)
_SET_ANEW: Final = 0.1
_USES: Final = 12
_USED_WITHIN_S: Final = 3_300.0
_EXPIRATION_MS: Final = 3_600_000
_CALL_S: Final = 30.0
_SLACK_MS: Final = 120_000
"""How long an entry may be on its way, between its writer's reading of a clock and the store's."""
_SETTINGS: Final = StoreSettings(
    clock_skew_ms_max=_SKEW_MS_MAX, request_timeout_ms=2_000, timeout_check_interval_ms=10**15
)
_MISSED: Final = (StoreUnavailable, OutcomeUnknown, CommandRefused)


def clock_rates_of(seed: int) -> FaultRates:
    """Return the faults of a history: none that delays an entry for long, since that is not a fault of a clock."""
    random = Random(f"{seed} clocks")
    kinds: list[Fault] = [
        fault for fault in Fault if fault not in (Fault.NONE, Fault.LATE, Fault.COPY_LATER, Fault.DENIED)
    ]
    rates = {fault: random.choice((0.0, 0.0, 0.01)) for fault in kinds}
    return FaultRates(rates, random.choice((0.0, 0.01)), pauses_s=(0.5, 5.0))


def clocks(simulator: Simulator) -> None:
    """Three writers with a transactional id each, and two processes that sweep; a right clock has made the store."""
    Log.open(
        simulator.shared,
        settings=_SETTINGS,
        clock=ManualClock(),
        ids=SeededIds(simulator.seed),
        background=StrictBackground(),
        create=True,
    )
    for number in range(3):
        simulator.add(f"writer {number}", _using(f"id {number}"))
    for number in range(2):
        simulator.add(f"sweep {number}", _sweeping)


def check_clocks(simulator: Simulator) -> None:
    """Entries bear the store's time, but for the allowed skew, and no transactional id expires that is in use.

    Raises:
        AssertionError: a clock that is wrong had an effect.
    """
    shared = simulator.shared
    used_ms: dict[str, int] = {}
    for number in range(1, shared.true_entries() + 1):
        name = names.entry(number)
        entry = decode_entry(shared.history[name], name, number)
        stored_ms = shared.modified_ms(name)
        ahead_ms = entry.timestamp_ms - stored_ms
        assert ahead_ms <= _SKEW_MS_MAX, f"the log's time is {ahead_ms} ms ahead of the store's at entry {number}"
        assert -ahead_ms <= _SKEW_MS_MAX + _SLACK_MS, f"the log's time is {-ahead_ms} ms behind at entry {number}"
        for command in entry.commands:
            if isinstance(command, InitProducerId) and command.transactional_id is not None:
                used_ms[command.transactional_id] = stored_ms
            elif isinstance(command, ExpireTransactionalId):
                idle_ms = stored_ms - used_ms[command.transactional_id]
                assert idle_ms >= _EXPIRATION_MS, f"{command.transactional_id} expired after {idle_ms} ms"


def _set_clock(process: Process) -> None:
    process.clock.skew_s = process.random.choice(_SKEWS_S)


def _using(transactional_id: str) -> Callable[[Process], None]:
    """Use a transactional id, never idle for as long as would let it expire."""

    def program(process: Process) -> None:
        _set_clock(process)
        log = process.open_log(_SETTINGS, check_clock=True)
        for _ in range(_USES):
            if process.random.random() < _SET_ANEW:
                _set_clock(process)
            with suppress(*_MISSED), log.within(_CALL_S):
                log.submit([InitProducerId(process.ids.token(), transactional_id, 60_000)])
            process.sleep(process.random.random() * _USED_WITHIN_S)

    return program


def _sweeping(process: Process) -> None:
    _set_clock(process)
    store = Store(process.simulator.shared.uri, {}, process.open_log(_SETTINGS, check_clock=True))
    for _ in range(_USES):
        if process.random.random() < _SET_ANEW:
            _set_clock(process)
        with suppress(*_MISSED):
            sweep(store, {"transactional.id.expiration.ms": _EXPIRATION_MS}, timeout_s=_CALL_S)
        process.sleep(process.random.random() * _USED_WITHIN_S)
