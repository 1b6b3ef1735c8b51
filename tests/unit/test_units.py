"""Durations and sizes have one syntax: in settings, in options of Spark, and in options of the command."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_txnlog.options.options import OPTIONS, Option
from sparktxn._foundation.config.maintenance import COMPACT_SETTINGS, REWRITE_SETTINGS, SWEEP_SETTINGS, VACUUM_SETTINGS
from sparktxn._foundation.config.settings import Setting
from sparktxn._foundation.config.store import STORE_SETTINGS
from sparktxn._foundation.config.topic import STORE_WIDE_SETTINGS, TOPIC_SETTINGS, check_topic_settings, topic_setting
from sparktxn._foundation.config.values import (
    BYTES,
    KIBIBYTES,
    MILLISECONDS,
    MINUTES,
    Parser,
    Unit,
    integer,
    parse_time_ago,
)
from sparktxn._foundation.values.quantities import duration_text
from sparktxn._kafka.settings.consumer import CONSUMER_SETTINGS
from sparktxn._kafka.settings.halfmessage import HALF_MESSAGE_SETTINGS
from sparktxn._kafka.settings.producer import PRODUCER_SETTINGS
from sparktxn._programs.cli.failures import WrongUsage, quantity
from sparktxn.errors import ConfigurationError
from tests.each import each

UNITS = {
    ("Ms", ".ms", "maxTriggerDelay"): MILLISECONDS,
    (".minutes",): MINUTES,
    (".kbytes",): KIBIBYTES,
    (".bytes", "bytes.per.minute", "batch.size", "max.message.size", "maxBytesPerTrigger"): BYTES,
}
"""The unit of a setting or an option, by how its name ends."""

OF_STORES = (*STORE_SETTINGS, *TOPIC_SETTINGS, *STORE_WIDE_SETTINGS)
OF_JOBS = (*SWEEP_SETTINGS, *VACUUM_SETTINGS, *REWRITE_SETTINGS, *COMPACT_SETTINGS)
OF_CLIENTS = (*CONSUMER_SETTINGS, *PRODUCER_SETTINGS, *HALF_MESSAGE_SETTINGS)

KNOWN: list[Setting | Option] = [*OF_STORES, *OF_JOBS, *OF_CLIENTS, *OPTIONS]

MEASURED: dict[str, tuple[Parser, Unit]] = {
    f"{known.name} {number}": (known.parse, unit)
    for number, known in enumerate(KNOWN)
    for ends, unit in UNITS.items()
    if known.name.endswith(ends)
}
"""The parsers of all durations and sizes."""

NUMBERS = st.integers(0, 10**6) | st.integers(0, 2**63)
WORDS = st.sampled_from(sorted({*MILLISECONDS.lengths, *BYTES.lengths}))


def parsed(parse: Parser, value: Any) -> Any:
    """Return a parsed value, None if it is refused."""
    try:
        return parse("setting", value)
    except ConfigurationError:
        return None


@each(sorted(MEASURED))
def test_a_number_without_a_unit_has_that_of_the_name(name: str) -> None:
    parse, unit = MEASURED[name]
    own = {"milliseconds": "ms", "minutes": "min", "bytes": "B", "KiB": "KiB"}[unit.name]
    count = next(count for count in (4_096, 65_536) if parsed(parse, count) is not None)
    for text in (f"{count}", f" {count} ", f"{count}{own}", f" {count} {own.upper()} "):
        assert parsed(parse, text) == count
    with pytest.raises(ConfigurationError) as caught:
        parse("setting", "5 sheep")
    assert f"'5 sheep': expected a {'' if 'linger' in name else 'whole '}number of {unit.name} " in str(caught.value)
    assert f", or one with a unit, such as {unit.examples}" in str(caught.value)


@given(NUMBERS, st.sampled_from(["", " "]), WORDS, st.sampled_from([str.lower, str.upper, str.title]))
def test_a_number_with_a_unit_means_the_same_everywhere(number: int, space: str, word: str, written: Any) -> None:
    text = f"{number}{space}{written(word)}"
    for parse, unit in MEASURED.values():
        count = parsed(parse, text)
        assert count is None or (count, 0) == divmod(number * unit.lengths[word], unit.length) or count == 268_435_456
    for unit in (MILLISECONDS, BYTES):
        try:
            assert quantity("--option", text, unit) == number * unit.lengths[word]
        except WrongUsage:
            assert word not in unit.lengths or number * unit.lengths[word] > 2**53
    ago = parsed(parse_time_ago, text)
    assert ago is None or ago.ago_ms == number * MILLISECONDS.lengths[word]


@pytest.mark.parametrize(
    "text",
    [
        "m",
        "1.5h",
        "1h30m",
        "-1h",
        "+1h",
        "1 us",
        "1e3s",
        "\u0661s",
        "1 \u212a",
        "5ss",
        "1_0s",
        "90s",
        "1500ms",
        "1MiB",
        "",
    ],
)
def test_what_is_no_whole_number_of_the_unit_is_refused(text: str) -> None:
    assert parsed(integer(0, 2**53, MINUTES), text) is None
    assert MINUTES.count(text) is None


@given(st.integers(1, 2**40))
def test_what_is_kept_and_what_is_printed_is_read_again(number: int) -> None:
    for unit in ("ms", "s", "min", "d"):
        given_text = {"retention.ms": f"{number}{unit}"}
        if (kept := parsed(lambda _, value: check_topic_settings(value), given_text)) is not None:
            assert kept["retention.ms"].isdigit()
            assert check_topic_settings(kept) == kept
            assert topic_setting(kept, "retention.ms") == MILLISECONDS.count(given_text["retention.ms"])
    printed = duration_text(number)
    if printed.count(" ") == 1 and not number % MILLISECONDS.lengths[printed.split()[1]]:
        assert MILLISECONDS.count(printed) == number
