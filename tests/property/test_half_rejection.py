"""Builds that reject half messages by another rule: the plain model finds each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from sparktxn._engine.format.commands import PrepareHalf
from sparktxn._engine.state import halfmessages, topics
from sparktxn._engine.state import settings as state_settings
from sparktxn._foundation.values.structs import StoreState, TopicState
from tests.property.test_state_machine import StateMachine

Patch = pytest.MonkeyPatch


def without_rejection(patch: Patch) -> None:
    patch.setattr(halfmessages, "rejection", lambda read, commands: None)


def without_the_store_s_setting(patch: Patch) -> None:
    rejection = state_settings.half_rejection
    patch.setattr(halfmessages, "half_rejection", lambda topic, store: rejection(topic, StoreState()))


def with_the_store_s_setting_above_the_topic_s(patch: Patch) -> None:
    rejection = state_settings.half_rejection

    def half_rejection(topic: TopicState, store: StoreState) -> Any:
        return rejection(replace(topic, settings={}) if store.topic_defaults else topic, store)

    patch.setattr(halfmessages, "half_rejection", half_rejection)


def with_the_first_segment_s_topic_alone(patch: Patch) -> None:
    rejection = halfmessages.rejection

    def first_alone(read: Any, commands: Iterable[PrepareHalf]) -> Any:
        return rejection(read, [replace(command, segments=command.segments[:1]) for command in commands])

    patch.setattr(halfmessages, "rejection", first_alone)


def with_ordinary_messages_rejected(patch: Patch) -> None:
    """What its own list commits is asked for too."""
    rejection = halfmessages.rejection

    def of_all(read: Any, commands: Iterable[PrepareHalf]) -> Any:
        return rejection(lambda key: read(key) or (key if key[0] == "half" else None), commands)

    patch.setattr(halfmessages, "rejection", of_all)


def without_checked_values(patch: Patch) -> None:
    for module in (topics, state_settings):
        patch.setattr(module, "check_values", lambda owner, values: None)


@pytest.mark.parametrize(
    "build",
    [
        without_rejection,
        pytest.param(without_the_store_s_setting, marks=pytest.mark.nightly),
        pytest.param(with_the_store_s_setting_above_the_topic_s, marks=pytest.mark.nightly),
        pytest.param(with_the_first_segment_s_topic_alone, marks=pytest.mark.nightly),
        with_ordinary_messages_rejected,
        without_checked_values,
    ],
)
def test_a_build_with_another_rule_is_found(monkeypatch: Patch, build: Callable[[Patch], None]) -> None:
    build(monkeypatch)
    histories = settings(
        settings.get_profile("fixed"),
        max_examples=300,
        stateful_step_count=StateMachine.TestCase.settings.stateful_step_count,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(StateMachine, settings=histories)
