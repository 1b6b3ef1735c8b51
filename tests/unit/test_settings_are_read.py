"""Every setting that is documented as having an effect is read somewhere outside `config/`."""

from __future__ import annotations

import ast
import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import sparktxn
from sparktxn._foundation.config.maintenance import SweepSettings, VacuumSettings
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.config.topic import TOPIC_SETTINGS
from sparktxn._kafka.settings.client import AdminSettings
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn._kafka.settings.producer import ProducerSettings
from tests.each import each

PACKAGE = Path(sparktxn.__file__).parent
SAYS_THAT_IT_HAS_NO_EFFECT = ("Only checked", "Kept and not applied")


@cache
def attributes_and_texts() -> tuple[set[str], set[str]]:
    """Return what the code outside `config/` names; to find it takes too long for a module that is only collected."""
    files = [file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[:2] != ("_foundation", "config")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes, {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@each(
    [
        AdminSettings,
        ConsumerSettings,
        HalfMessageSettings,
        ProducerSettings,
        StoreSettings,
        SweepSettings,
        VacuumSettings,
    ]
)
def test_every_setting_of_a_group_is_read(group: Any) -> None:
    known = {field.name: field.metadata["setting"] for field in dataclasses.fields(group) if field.metadata}
    attributes, _ = attributes_and_texts()
    unread = {
        setting.name
        for field, setting in known.items()
        if field not in attributes and not setting.meaning.startswith(SAYS_THAT_IT_HAS_NO_EFFECT)
    }
    assert not unread


def test_every_setting_of_a_topic_is_read() -> None:
    _, texts = attributes_and_texts()
    unread = {
        setting.name
        for setting in TOPIC_SETTINGS
        if setting.name not in texts and not setting.meaning.startswith(SAYS_THAT_IT_HAS_NO_EFFECT)
    }
    assert not unread
