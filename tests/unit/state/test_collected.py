"""Records of a state are frozen values without cycles: the garbage collector is to pass over them.

A process holds a record for each partition, producer and request; looking at all of them again and again cost a third
of its time.
"""

from __future__ import annotations

import inspect
from typing import Any, get_args

import msgspec

import sparktxn._foundation.values.segmentstructs
import sparktxn._foundation.values.structs
from sparktxn._engine.log.views.readview import PartitionView
from sparktxn._foundation.values.structs import StateRecord
from tests.each import each

MODULES = (
    sparktxn._foundation.values.structs,
    sparktxn._foundation.values.structs,
    sparktxn._foundation.values.segmentstructs,
)
TUPLES = {
    kind
    for module in MODULES
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, msgspec.Struct) and kind.__struct_config__.array_like
}
KINDS = sorted({*get_args(StateRecord), *TUPLES, PartitionView}, key=lambda kind: kind.__name__)


@each(KINDS)
def test_the_garbage_collector_passes_over_records(kind: Any) -> None:
    assert kind.__struct_config__.frozen
    assert not kind.__struct_config__.gc
