"""Which settings there are: each is set somewhere, and an unknown name is refused with the nearest known one."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyspark_txnlog.options.options import OPTIONS, READ, Option, parse_given
from sparktxn._foundation.config.maintenance import (
    COMPACT_SETTINGS,
    REWRITE_SETTINGS,
    SWEEP_SETTINGS,
    VACUUM_SETTINGS,
    VacuumSettings,
)
from sparktxn._foundation.config.settings import Setting
from sparktxn._foundation.config.store import STORE_SETTINGS, StoreSettings
from sparktxn._foundation.config.topic import STORE_WIDE_SETTINGS, TOPIC_SETTINGS, check_topic_settings
from sparktxn._kafka.settings.client import IGNORED_SETTINGS
from sparktxn._kafka.settings.consumer import CONSUMER_SETTINGS, ConsumerSettings
from sparktxn._kafka.settings.halfmessage import HALF_MESSAGE_SETTINGS, HalfMessageSettings
from sparktxn._kafka.settings.producer import PRODUCER_SETTINGS, ProducerSettings
from sparktxn._programs.gateway.gatewaysettings import GatewayLimits, GatewaySettings
from sparktxn.errors import ConfigurationError
from tests.each import each

ROOT = Path(__file__).parent.parent.parent
ROWS_MAX = 144
PLACES = ("tests", "docs", "examples", "bench", "conf", "site")
NOT_PLACES = ("docs/configuration.md", "docs/PROTOCOL.md", "docs/adr/", "tests/evidence.txt", str(Path(__file__).name))
TABLES = {
    "store": STORE_SETTINGS,
    "producer": PRODUCER_SETTINGS,
    "consumer": CONSUMER_SETTINGS,
    "half messages": HALF_MESSAGE_SETTINGS,
    "topic": (*TOPIC_SETTINGS, *STORE_WIDE_SETTINGS),
    "sweep": SWEEP_SETTINGS,
    "vacuum": VACUUM_SETTINGS,
    "rewrite": REWRITE_SETTINGS,
    "compact": COMPACT_SETTINGS,
}
OF_GATEWAYS = frozenset(GatewaySettings.__struct_fields__) - frozenset(GatewayLimits.__struct_fields__)


@cache
def names_set() -> frozenset[str]:
    """Return the dotted names in all files in which a user or a test may set something."""
    files = [f"{place}/*{ending}" for place in PLACES for ending in (".py", ".md", ".properties")]
    listed = subprocess.run(
        ["git", "ls-files", "README.md", *files], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names: set[str] = set()
    for file in listed.stdout.split():
        if not any(other in file for other in NOT_PLACES):
            names.update(re.findall(r"(?<![a-z])[a-z]+(?:\.[a-z]+)+", (ROOT / file).read_text()))
    return frozenset(names)


def is_own(known: Setting) -> bool:
    """Return whether neither librdkafka nor Kafka's topics have a setting's name."""
    return "." in known.name and known.name not in IGNORED_SETTINGS


@each(TABLES)
def test_a_setting_of_our_own_is_set_somewhere(table: str) -> None:
    assert [
        known.name for known in TABLES[table] if is_own(known) and names_set().isdisjoint((known.name, *known.aliases))
    ] == []


def test_the_tables_of_settings_are_short() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    tables = re.findall(r"^\| (?:setting|option) \|.*\n\| - .*\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = sum(table.count("\n") for table in tables) + len(OF_GATEWAYS)
    print(f"{rows} settings")
    assert rows <= ROWS_MAX


def test_a_setting_that_changes_nothing_is_in_the_list_alone() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    listed = page.split("\n## Only checked\n")[1]
    options: list[Setting | Option] = [*PRODUCER_SETTINGS, *OPTIONS]
    for known in options:
        if known.meaning.startswith("Only checked: "):
            assert f"`{known.name}`" in listed


OF_CLIENTS = {"bootstrap.servers": "/data/log"}


@each(
    [
        (StoreSettings.parse, {"checkpoint.bytes": 1}, "checkpoint.entries"),
        (StoreSettings.parse, {"checkpoint.merge.runs": 2}, "checkpoint.entries"),
        (VacuumSettings.parse, {"x": 1}, r"vacuum\.\S+"),
        (check_topic_settings, {"table.lag.target.ms": 1}, "table.history.ms"),
        (ProducerSettings.parse, {**OF_CLIENTS, "linger": 1}, "linger.ms"),
        (ConsumerSettings.parse, {**OF_CLIENTS, "zzz": 1}, r"\S+"),
        (HalfMessageSettings.parse, {**OF_CLIENTS, "transaction.check.maximum": 1}, "transaction.check.max"),
        (lambda given: parse_given(given, READ), {"path": "/s", "catalogTable": "true"}, r"\w+"),
    ]
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(parse: Any, given: dict[str, Any], nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"(did you mean|the nearest known name is) '{nearest}'"):
        parse(given)
