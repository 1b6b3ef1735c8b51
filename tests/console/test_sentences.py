"""Each command has a sentence, whatever its members hold."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.format.commands import Append, Appends, Command
from sparktxn._programs.console.commandsentences import sentence, sentences
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


def test_appends_of_one_transaction_that_follow_each_other_are_one_sentence() -> None:
    def append(partition: int, records: int, transaction: int) -> Append:
        return Append(
            1, partition, "s", records, 100, "0" * 8, 7, 0, 0, 0, 0, transactional_id="shop", transaction=transaction
        )

    commands = [append(0, 4, 1), append(1, 3, 1), append(0, 1, 2), append(1, 1, 2), append(2, 1, 3)]
    said = sentences(commands, {1: "orders"})
    assert said == [
        "7 records (200\u00a0B) are appended: 4 to orders-0, 3 to orders-1, in transaction 1 of 'shop'",
        "2 records (200\u00a0B) are appended: 1 to orders-0, 1 to orders-1, in transaction 2 of 'shop'",
        "1 record (100\u00a0B) is appended to orders-2, in transaction 3 of 'shop'",
    ]
