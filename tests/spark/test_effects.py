"""Options that need another one to have an effect: each is warned of without it, once, and is silent with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.options import sparkevents
from pyspark_txnlog.options.options import READ, READ_STREAM, SCHEMA, WRITE, ReadOptions, WriteOptions

STRATEGY: Final = {"startingoffsetsbytimestampstrategy": "latest"}
CASES: Final[list[tuple[dict[str, str], list[dict[str, str]], list[dict[str, str]], Any]]] = [
    # What is given, what does not help, what it needs, and the use.
    ({"maxtriggerdelay": "5s"}, [{}, {"maxoffsetspertrigger": "5"}], [{"minoffsetspertrigger": "5"}], READ_STREAM),
    (
        STRATEGY,
        [{}, {"startingoffsets": "-10 minutes"}],
        [{"startingtimestamp": "5"}, {"startingoffsetsbytimestamp": '{"t":{"0":5}}'}],
        READ,
    ),
    (
        {"autooffsetreset": "latest"},
        [{}, {"startingoffsets": "latest"}],
        [{"startingoffsets": "committed", "kafka.group.id": "g"}],
        READ_STREAM,
    ),
    ({"createtopicpartitions": "5"}, [{}, {"createtopic": "false"}], [{"createtopic": "true"}], WRITE),
]


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    monkeypatch.setattr(sparkevents, "_warned", set())
    with caplog.at_level(logging.WARNING, "sparktxn"):
        yield


def parse(given: dict[str, str], use: Any) -> None:
    whole = {"path": "/s", "topic": "t", **given}
    if use == WRITE:
        WriteOptions.parse(whole, use)
    else:
        ReadOptions.parse(whole, use)


@pytest.mark.parametrize(("given", "others", "use"), [(case[0], other, case[3]) for case in CASES for other in case[1]])
def test_an_option_without_an_effect_is_warned_of_once(
    given: dict[str, str], others: dict[str, str], use: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        parse({**given, **others}, use)
    (need,) = (need for need in sparkevents.NEEDS if need.name.lower() in given)
    assert caplog.messages == [f"option {need.name!r} of {use} has no effect without {need.words}"]


@pytest.mark.parametrize(("given", "others", "use"), [(case[0], other, case[3]) for case in CASES for other in case[2]])
def test_an_option_with_what_it_needs_is_not_warned_of(
    given: dict[str, str], others: dict[str, str], use: Any, caplog: pytest.LogCaptureFixture
) -> None:
    parse({**given, **others}, use)
    assert caplog.messages == []


def test_the_cases_are_of_all_such_options() -> None:
    assert {need.name.lower() for need in sparkevents.NEEDS} == {name for case in CASES for name in case[0]}


def test_an_option_that_a_batch_ignores_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    parse({"maxtriggerdelay": "7s"}, READ)
    assert not any("has no effect" in message for message in caplog.messages)


def test_nothing_is_said_while_spark_asks_for_the_schema(caplog: pytest.LogCaptureFixture) -> None:
    parse(STRATEGY, SCHEMA)
    assert caplog.messages == []
