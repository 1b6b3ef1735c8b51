"""Every setting that is documented as having an effect is read somewhere outside `config/`."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import sparktxn
from sparktxn.config.maintenance import SweepSettings, VacuumSettings
from sparktxn.config.store import StoreSettings
from sparktxn.config.topic import TOPIC_SETTINGS
from sparktxn.kafka.settings.admin import AdminSettings
from sparktxn.kafka.settings.consumer import ConsumerSettings
from sparktxn.kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.kafka.settings.producer import ProducerSettings
from tests.each import each

PACKAGE = Path(sparktxn.__file__).parent
SAYS_THAT_IT_HAS_NO_EFFECT = ("Only checked", "Kept and not applied")


def nodes() -> list[ast.AST]:
    files = [file for file in PACKAGE.rglob("*.py") if "config" not in file.relative_to(PACKAGE).parts[:1]]
    return [node for file in files for node in ast.walk(ast.parse(file.read_text()))]


NODES = nodes()
ATTRIBUTES = {node.attr for node in NODES if isinstance(node, ast.Attribute)}
TEXTS = {node.value for node in NODES if isinstance(node, ast.Constant) and isinstance(node.value, str)}


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
    unread = {
        setting.name
        for field, setting in known.items()
        if field not in ATTRIBUTES and not setting.meaning.startswith(SAYS_THAT_IT_HAS_NO_EFFECT)
    }
    assert not unread


def test_every_setting_of_a_topic_is_read() -> None:
    unread = {
        setting.name
        for setting in TOPIC_SETTINGS
        if setting.name not in TEXTS and not setting.meaning.startswith(SAYS_THAT_IT_HAS_NO_EFFECT)
    }
    assert not unread
