"""The shortest trace of what may go wrong with a half message, each driven against the real write loop."""

from __future__ import annotations

from collections.abc import Callable

from sparktxn._engine.format.commands import Command, CommandResult, DiscardHalf, EndHalf, ResumeHalf
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.store import Store
from tests.simulation.director import Act
from tests.simulation.scripted import ScriptedWorld, entry_name

__all__ = ["TRACES", "Trace"]

HALF = ("shop", "payment")
Trace = Callable[[ScriptedWorld], None]
TRACES: list[Trace] = []


def trace(function: Trace) -> Trace:
    TRACES.append(function)
    return function


def prepare(stage: ScriptedWorld, body: bytes = b"paid") -> None:
    """Send one half message, by a producer that is gone then."""
    engine = HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": stage.uri}))
    staged = engine.stage([MessageRecord("left", body, "id", 0)])
    engine.prepare(*HALF, staged, 6_000)


def on_its_way(stage: ScriptedWorld, command: Command) -> Act[list[CommandResult]]:
    """A process that has checked its command against the state, and is paused before it puts it."""
    act = stage.submits(command)
    act.until("put_if_absent", entry_name(stage.calm.entry + 1))
    return act


def is_refused(act: Act[list[CommandResult]]) -> bool:
    try:
        act.finish()
    except CommandRefused as error:
        return error.error.code() == ErrorCode.INVALID_TXN_STATE
    return False


def delivered(stage: ScriptedWorld) -> list[bytes]:
    with Store.open(stage.uri) as store:
        view = store.view(["left"])
        tasks = store.plan(view, store.ranges(view, isolation="read_committed"), isolation="read_committed")
        return [row["value"] for task in tasks for batch in stage.rows_of(task) for row in batch.to_pylist()]


@trace
def a_commit_from_the_check_and_one_from_the_producer(stage: ScriptedWorld) -> None:
    """Both have seen it pending; the second one gets the same outcome, and delivers nothing again."""
    prepare(stage)
    producer = on_its_way(stage, EndHalf(*HALF, committed=True))
    stage.submit(EndHalf(*HALF, committed=True, by_check=True))
    (result,) = producer.finish()
    assert result.committed
    assert delivered(stage) == [b"paid"], "a half message was not delivered once"
    stage.check_agreement()


@trace
def a_rollback_from_the_check_and_a_commit_from_the_producer(stage: ScriptedWorld) -> None:
    """The checker has found no local transaction; that of the producer was slower, and must learn of it."""
    prepare(stage)
    producer = on_its_way(stage, EndHalf(*HALF, committed=True))
    stage.submit(EndHalf(*HALF, committed=False, by_check=True))
    assert is_refused(producer), "a half message was settled both ways"
    assert delivered(stage) == []
    stage.check_agreement()


@trace
def a_discard_that_comes_after_a_commit(stage: ScriptedWorld) -> None:
    """A checker gives up after its last check, while the producer commits: nothing is left to resume or delete."""
    prepare(stage)
    checker = on_its_way(stage, DiscardHalf(*HALF, 0))
    stage.submit(EndHalf(*HALF, committed=True))
    assert is_refused(checker), "a half message was committed and discarded"
    assert stage.calm.halves() == []
    assert delivered(stage) == [b"paid"]
    stage.check_agreement()


@trace
def a_commit_that_comes_after_a_discard(stage: ScriptedWorld) -> None:
    """The producer learns that it has not taken effect, and an administrator may still let it."""
    prepare(stage)
    producer = on_its_way(stage, EndHalf(*HALF, committed=True))
    stage.submit(DiscardHalf(*HALF, 0))
    assert is_refused(producer), "a discarded half message was committed"
    assert delivered(stage) == []
    assert len(stage.calm.halves()) == 1, "a discarded half message is lost"
    stage.submit(ResumeHalf(*HALF, 0))
    stage.submit(EndHalf(*HALF, committed=True, by_check=True))
    assert delivered(stage) == [b"paid"]
    stage.check_agreement()


@trace
def a_vacuum_between_a_half_message_and_its_commit(stage: ScriptedWorld) -> None:
    """Its entry and every list of uploads are long gone when it is committed; its segment is not."""
    body = b"paid" * 5_000
    prepare(stage, body)
    stage.go_past()
    stage.submit(EndHalf(*HALF, committed=True))
    assert delivered(stage) == [body]
    stage.check_agreement()
