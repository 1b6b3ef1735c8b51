"""The edge fuzzer: the same sample in every run, all cases in `make nightly`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.edge.calls import CALLS, NOT_CALLED, Call, public_calls
from tests.edge.fuzzer import all_cases, attribute_findings, option_findings, run_cases
from tests.edge.world import World
from tests.seeds import seed_of

SAMPLE = 250
"""Cases of a run of the sample."""

PINNED = (
    "AdminClient.alter_consumer_group_offsets(alter_consumer_group_offsets_request=array0)",
    "ConfigEntry(synonyms=float64)",
    "ConfigEntry(source=schema)",
    "Store.commit(staged=data bytes)",
    "Store.commit(staged=partition Text)",
    "Store.commit(staged=record_count 2**63)",
    "Store.commit(staged=topic_id set)",
    "Store.open(options=checkpoint.seal.segments: 10**5000)",
    "Store.create_topic(schema=object)",
    "Store.create_topic(name=long)",
    "Consumer.commit(message=message of offset text)",
    "PreparedTransaction.parse(text=long)",
    "AIOConsumer(consumer_conf=[null])",
    "Consumer(config=bootstrap.servers: null)",
    "Store.create_topic(settings=cleanup.policy: 10**5000)",
    "Producer.produce(partition=10**5000)",
    "Producer.produce_batch(messages=[10**5000])",
    "NewTopic(config=array)",
    "AdminClient.alter_configs of the store(resources=dict tuple)",
    "AdminClient.alter_configs of the store(resources=dict 5)",
    "AdminClient.incremental_alter_configs of the store(resources=entries array)",
    "output_schema(columns=generator)",
    "output_schema(topic_schema=10**5000)",
    "rows_at_most(ranges=dict by pair)",
)
"""Cases that have found something."""


def told(findings: list[Any]) -> str:
    lines = [f"{finding.case}: {finding.what}" for finding in findings[:30]]
    return f"{len(findings)} findings; again with python -m tests.edge '<case>'\n" + "\n".join(lines)


def test_every_public_method_has_a_call() -> None:
    """A new public method has a valid call in tests/edge/calls.py, whose arguments are then replaced."""
    public = set(public_calls())
    assert [name for name in sorted(public) if name not in CALLS and name not in NOT_CALLED] == []
    assert [name for name in (*CALLS, *NOT_CALLED) if name.partition(" ")[0] not in public] == []


def test_the_valid_calls_pass() -> None:
    made, findings = run_cases([case for case in all_cases() if not case.parameter])
    assert made == len(CALLS)
    assert findings == [], told(findings)


def test_attributes_take_plain_values_only() -> None:
    findings = list(attribute_findings())
    assert findings == [], told(findings)


def test_sparks_options_are_refused_by_name_or_fit_the_log() -> None:
    pytest.importorskip("pyspark")
    findings = list(option_findings())
    assert findings == [], told(findings)


@pytest.mark.parametrize("pinned", PINNED)
def test_what_was_found_once(pinned: str) -> None:
    _, findings = run_cases([case for case in all_cases() if str(case) == pinned])
    assert findings == [], told(findings)


def test_a_sample() -> None:
    _, findings = run_cases(Random(seed_of("edge")).sample(list(all_cases()), SAMPLE))
    assert findings == [], told(findings)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CALLS)
def test_all_cases(name: str) -> None:
    made, findings = run_cases([case for case in all_cases() if case.call == name])
    print(f"{made} calls of {name}")
    assert findings == [], told(findings)


def damaging(world: World) -> None:
    name = f"{world.store.log.entry + 1:020d}.json"
    (Path(world.uri) / "_log" / name).write_text("{}")


def failing(error: Exception) -> Callable[[World], Callable[..., Any]]:
    def fail(**_: Any) -> None:
        raise error

    return lambda _world: fail


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (lambda world: lambda **_: damaging(world), "afterwards: "),
        (lambda world: lambda **_: world.admin.delete_topics(["witness"]), "afterwards: "),
        (failing(KeyError("timeout")), "raises builtins.KeyError"),
        (failing(OverflowError("timeout")), "raises builtins.OverflowError"),
        (failing(UnicodeEncodeError("utf-8", "timeout", 0, 1, "timeout")), "raises builtins.UnicodeEncodeError"),
        (failing(TypeError("wrong")), "its error does not name 'timeout'"),
    ],
)
def test_the_fuzzer_finds_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, target: Callable[[World], Callable[..., Any]], found: str
) -> None:
    monkeypatch.setitem(CALLS, "Consumer.poll", Call(target, CALLS["Consumer.poll"].arguments))
    cases = [case for case in all_cases() if str(case) == "Consumer.poll(timeout=t)"]
    _, findings = run_cases(cases)
    assert any(found in finding.what for finding in findings), told(findings)


def test_the_fuzzer_finds_a_change_that_is_written_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "AdminClient.alter_configs of the store"
    plain = CALLS[name]

    def target(world: World) -> Callable[..., Any]:
        def fail(**_: Any) -> None:
            for future in plain.target(world)(**plain.arguments(world)).values():
                future.result()
            raise TypeError("resources")

        return fail

    monkeypatch.setitem(CALLS, name, Call(target, plain.arguments))
    _, findings = run_cases([case for case in all_cases() if str(case) == f"{name}(resources=5)"])
    assert [finding.what for finding in findings] == ["it is refused, and an entry is written"]
