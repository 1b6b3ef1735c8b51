"""Handles refuse to be copied or pickled: a copy that is dropped would close what the first one uses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparktxn.admin import AdminClient
from sparktxn.halfmessage import TransactionMQProducer, rocketmq5
from tests.world import World


@pytest.fixture
def handles() -> Iterator[list[Any]]:
    world = World()
    admin = AdminClient({"bootstrap.servers": world.uri})
    half = TransactionMQProducer("p", world.uri)
    half5 = rocketmq5.Producer(rocketmq5.ClientConfiguration(world.uri), ("t",), Unasked())
    half5.startup()
    stager = world.store.stage_plan(["t"]).open(seed=0)
    yield [world.producer(), world.consumer(), admin, world.store, half, half5, half5.begin_transaction(), stager]
    half5.shutdown()
    admin.close()
    world.close()


class Unasked(rocketmq5.TransactionChecker):
    def check(self, message: rocketmq5.Message) -> rocketmq5.TransactionResolution:
        raise AssertionError("no transaction is left open")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_handle_is_copied(handles: list[Any], copied: Callable[[Any], Any]) -> None:
    for handle in handles:
        with pytest.raises(TypeError, match=f"a {type(handle).__name__} cannot be copied or pickled"):
            copied(handle)
