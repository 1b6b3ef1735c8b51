"""What the simulator has found: the seeds, and what they came to, as schedules that do not move with the code."""

from __future__ import annotations

import pytest

from sparktxn._engine.format.commands import CreateTopic
from sparktxn.errors import KafkaException
from sparktxn.producer import Producer
from tests.simulation.director import Act
from tests.simulation.scenarios import simulate
from tests.simulation.scripted import SETTINGS, ScriptedWorld, entry_name
from tests.simulation.truth import entry_and_digest

pytestmark = pytest.mark.simulation

PINNED = [
    ("prepared", 18),  # a producer had to repeat a call without end although its outcome was lost
    ("prepared", 1_082),  # a coordinator that took its database over before its transactional id
    ("administered", 70_158),  # a handle that slept while a vacuum passed called the store damaged
    ("maintained", 70_002),  # the same
    ("abandoned", 11),  # a list was put that its owner had let go of while its entry was composed
    ("overtaken", 9_001_349),  # a part was taken from a newer checkpoint, and deferred entries were applied to it again
    ("overtaken", 9_002_098),  # the same
    ("unnamed", 2_946),  # a commit was reported as failed that another thread of its process was about to send
    ("abandoned", 665),  # a closed producer's sender queued a list, and another client's call put it
]


@pytest.mark.parametrize(("scenario", "seed"), PINNED)
def test_the_seed_holds(scenario: str, seed: int) -> None:
    # With files alone, as they were found: inline records are other schedules.
    simulate(seed, scenario, inline_bytes=0)


def test_a_producer_whose_outcome_nobody_can_tell_is_not_told_to_call_again(stage: ScriptedWorld) -> None:
    """It slept in its commit, was fenced, and its entry was vacuumed: the same call would never be answered."""

    def program(act: Act[KafkaException]) -> KafkaException:
        uri, _ = act.connect(SETTINGS)
        producer = Producer({"bootstrap.servers": uri, "transactional.id": "job"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("left", "value")
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(1e9)
        with pytest.raises(KafkaException) as again:
            producer.commit_transaction(1e9)
        assert again.value.error.fatal()
        return raised.value

    writer = stage.act("writer", program)
    # The producer's own init takes the next slot, and its commit the one after.
    writer.until("put_if_absent", entry_name(stage.calm.entry + 2))
    writer.do()
    stage.initialise("job")
    stage.go_past()
    told = writer.finish()
    assert told.error.fatal()
    assert not told.error.retriable()


def test_a_handle_that_slept_while_a_vacuum_passed_finds_topics_and_no_damage(stage: ScriptedWorld) -> None:
    """It stands on a checkpoint whose parts are gone, and has not read all of them: the store is not damaged."""
    stage.checkpoint()

    def program(act: Act[tuple[object, ...]]) -> tuple[object, ...]:
        log = act.open_log(SETTINGS)
        return log.topic("left"), log.transaction("filler"), log.topics(), log.committed_offset("none", 1, 0)

    sleeper = stage.act("sleeper", program)
    sleeper.until("get", "/")  # about to read its first part
    while (
        not sleeper.operations[-1].name.startswith("_log/_checkpoints/") or sleeper.operations[-1].name.count("/") < 3
    ):
        sleeper.until("get", "/")
    for topic in ("more", "yet-more"):
        stage.submit(CreateTopic(topic, topic, 1))
    stage.go_past()
    found = sleeper.finish()
    assert found == (
        stage.calm.topic("left"),
        stage.calm.transaction("filler"),
        stage.calm.topics(),
        None,
    )


def test_a_state_that_a_vacuum_passes_while_it_is_compared_is_no_damage(stage: ScriptedWorld) -> None:
    """A checker reads parts as the process itself does: those that are gone are read from a newer checkpoint."""
    stage.checkpoint()

    def program(act: Act[tuple[int, str]]) -> tuple[int, str]:
        return entry_and_digest(act.open_log(SETTINGS))

    compared = stage.act("compared", program)
    compared.until("get", "/0.json")
    stage.submit(CreateTopic("more", "more", 1))
    stage.go_past()
    assert compared.finish() == entry_and_digest(stage.calm)
