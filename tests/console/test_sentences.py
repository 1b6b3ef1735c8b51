"""Each command has a sentence, whatever its members hold."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn.console.sentences import sentence
from sparktxn.format.commands import Appends, Command
from tests.property.test_accepted_values import commands_

KINDS = [kind for kind in get_args(Command) if kind is not Appends]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=8)
@given(data=st.data())
def test_a_command_is_one_sentence(kind: Any, data: st.DataObject) -> None:
    text = sentence(data.draw(commands_([kind], hostile_max=3)), {1: "typed"})
    assert text
    assert not text.endswith(".")


def test_appends_of_another_object_are_counted() -> None:
    assert sentence(Appends("x.parquet", "00000000", 0, 1_200), {}) == "1\u202f200 appends are listed in x.parquet"
