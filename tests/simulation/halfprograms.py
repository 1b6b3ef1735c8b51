"""Half messages in a simulation: processes of one producer group, whose local transactions a database decides.

The database is what they share: a decision is taken once for each half transaction. A check that finds none decides
against it, as a program must do whose local transaction may still run.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktxn._engine.format.commands import Command, EndHalf, ResumeHalf
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values.structs import HalfSegment, HalfState
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.errors import KafkaException, StoreUnavailable
from sparktxn.halfmessage.checks import Checks
from sparktxn.halfmessage.engine import HalfEngine, StagedMessages
from sparktxn.halfmessage.records import MessageRecord
from tests.simulation.clienthistory import ClientHistory
from tests.simulation.clientprograms import ClientWorld, Program, connect
from tests.simulation.history import Outcome
from tests.simulation.simulator import Process

__all__ = ["selling", "settle_halves"]

_GROUP = "shop"
_CHECKS_MAX = 2
_PAUSES_S = (0.01, 1.0, 5.0)
_SETTINGS = {
    "transaction.timeout.ms": 2_000,
    "transaction.check.interval.ms": 3_000,
    "transaction.check.max": _CHECKS_MAX,
    "send.message.timeout.ms": 5_000,
}


def selling(world: ClientWorld, messages: int) -> Program:
    """Sends half messages, settles them, and is asked for those of other processes, until it has tried so many."""
    done = 0

    def program(process: Process) -> None:
        nonlocal done
        uri, _ = connect(process, world)
        engine = HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": uri, **_SETTINGS}))
        history = world.history

        def ask(half: HalfState, records: Sequence[MessageRecord]) -> bool | None:
            history.asked[half.transaction_id] = history.asked.get(half.transaction_id, 0) + 1
            if process.random.random() < 0.4:
                return None
            return history.decisions.setdefault(half.transaction_id, False)

        checks = Checks(engine, lambda: (_GROUP,), ask)
        rounds = 0
        while done < messages or rounds < 8:
            try:
                if done < messages:
                    done += 1
                    _sell(process, world, engine)
                else:
                    rounds += 1
                history.operations += 1
                checks.round()
            except (KafkaException, StoreUnavailable):
                process.sleep(process.random.random())
            process.sleep(process.random.random() * process.random.choice(_PAUSES_S))
        world.end(process.name)

    return program


def _sell(process: Process, world: ClientWorld, engine: HalfEngine) -> None:
    """One half transaction of one to three messages: sent, its local transaction, and its settlement.

    Raises:
        KafkaException: a call has failed; the checks make up for it.
    """
    random, history = process.random, world.history
    noted = history.begin(process.name, engine.log.ids.token())
    # Half messages of one process take effect in any order: that of their settlements.
    noted.process = noted.name
    history.halves.add(noted.transactional_id)
    topics = random.choices(sorted(world.topics), k=random.randint(1, 3))
    prepared: tuple[HalfSegment, ...] = ()
    waiting: list[StagedMessages] = []
    for number, topic in enumerate(topics):
        value = f"{noted.name}.{number}<"
        record = MessageRecord(topic, value.encode(), engine.log.ids.token(), engine.log.clock.wall_ms())
        history.operations += 1
        staged = engine.stage([record])
        noted.sent.append((topic, staged.partitions[0], value))
        waiting.append(staged)
        # Messages join one by one, or some at a time.
        if random.random() < 0.5 or number == len(topics) - 1:
            segments = tuple(segment for each in waiting for segment in each.segments)
            records = {name: data for each in waiting for name, data in each.records.items()}
            joined = StagedMessages(staged.partitions, segments, records)
            engine.prepare(_GROUP, noted.transactional_id, joined, 2_000, after=prepared)
            prepared, waiting = (*prepared, *segments), []
    process.sleep(random.random() * random.choice(_PAUSES_S))
    committed = history.decisions.setdefault(noted.transactional_id, random.random() < 0.7)
    # From here on a check may commit it.
    noted.ending = process.simulator.steps
    if random.random() < 0.25:
        return
    process.sleep(random.random() * random.choice(_PAUSES_S))
    history.operations += 1
    engine.end(_GROUP, noted.transactional_id, committed=committed)
    noted.outcome = Outcome.COMMITTED if committed else Outcome.ABORTED
    if committed:
        noted.told, noted.entry = process.simulator.steps, engine.log.entry


def settle_halves(log: Log, history: ClientHistory) -> None:
    """Settle what is pending or discarded, as the database has decided."""
    for half in sorted(log.halves(), key=lambda half: half.key):
        named = (half.group_id, half.transaction_id)
        commands: list[Command] = [ResumeHalf(*named, 0)] if half.discarded_entry else []
        committed = history.decisions.get(half.transaction_id, False)
        log.submit([*commands, EndHalf(*named, committed, by_check=True)])
