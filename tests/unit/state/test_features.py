"""Features that a store requires: added, kept, and never taken away."""

from __future__ import annotations

import pytest

from sparktxn._engine.format.commands import CommandResult, RequireFeatures
from sparktxn.errors import ErrorCode
from tests.purelog import PureLog


def test_features_are_added_sorted_and_kept(log: PureLog) -> None:
    assert log.submit(RequireFeatures(("b", "a"), ("w",))) == [CommandResult()]
    assert log.submit(RequireFeatures(("c",))) == [CommandResult()]
    assert log.submit(RequireFeatures((), ("v",))) == [CommandResult()]
    store = log.records["store",]
    assert (store.reader_features, store.writer_features) == (("a", "b", "c"), ("v", "w"))


def test_what_is_required_already_changes_nothing(log: PureLog) -> None:
    log.submit(RequireFeatures(("a", "b"), ("w",)))
    entry = log.entry
    assert log.submit(RequireFeatures(("b",), ("w",))) == [CommandResult(duplicate=True)]
    assert log.entry == entry


@pytest.mark.parametrize("name", ["a", "a_1", "a" * 64])
def test_a_name_of_letters_digits_and_underscores_is_a_feature(log: PureLog, name: str) -> None:
    log.submit(RequireFeatures((name,)))
    assert log.records["store",].reader_features == (name,)


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", "a" * 65, "a\n"])
@pytest.mark.parametrize("of", ["reader_features", "writer_features"])
def test_other_names_are_refused(log: PureLog, name: str, of: str) -> None:
    assert log.refusal(RequireFeatures(**{of: ("fine", name)})) == ErrorCode.INVALID_REQUEST
    assert log.records["store",].reader_features == ()
