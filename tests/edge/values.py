"""The hostile values: each is made anew for every call, for a call may use it up or change it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any, Final, cast

import numpy
import pyarrow as pa

from sparktxn import Message, TopicPartition

__all__ = ["HOSTILE", "OPTION_TEXTS", "PARTITIONS"]


class Whole(IntEnum):
    """A subclass of int."""

    FIVE = 5


class Word(StrEnum):
    """A subclass of str."""

    T = "t"


class Text(str):
    """A subclass of str that lies about itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\ud800"

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"\xff"


class Unprintable:
    """Has no repr."""

    def __repr__(self) -> str:
        raise RuntimeError("this object has no repr")


class Anything:
    """A class that can be called with anything."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def _list_in_itself() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def _dict_in_itself() -> dict[str, Any]:
    endless: dict[str, Any] = {}
    endless["x"] = endless
    return endless


HOSTILE: Final[dict[str, Callable[[], Any]]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "-1": lambda: -1,
    "5": lambda: 5,
    "2**31": lambda: 2**31,
    "2**53": lambda: 2**53,
    "2**63-1": lambda: 2**63 - 1,
    "2**63": lambda: 2**63,
    "-2**63-1": lambda: -(2**63) - 1,
    "10**5000": lambda: 10**5000,
    "5.0": lambda: 5.0,
    "0.5": lambda: 0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "1e300": lambda: 1e300,
    "1j": lambda: 1j,
    "Decimal": lambda: Decimal(5),
    "Fraction": lambda: Fraction(1, 2),
    "int8": lambda: numpy.int8(1),
    "int64": lambda: numpy.int64(1),
    "uint64": lambda: numpy.uint64(2**63),
    "float32": lambda: numpy.float32(0.5),
    "float64": lambda: numpy.float64(1),
    "bool_": lambda: numpy.bool_(True),
    "str_": lambda: numpy.str_("t"),
    "array": lambda: numpy.array([1, 2]),
    "array0": lambda: numpy.array(1),
    "IntEnum": lambda: Whole.FIVE,
    "StrEnum": lambda: Word.T,
    "Text": lambda: Text("t"),
    "empty": lambda: "",
    "t": lambda: "t",
    "number text": lambda: "5",
    "surrogate": lambda: "\ud800",
    "null": lambda: "a\0b",
    "slashes": lambda: "../../x",
    "long": lambda: "x" * 40_000,
    "lines": lambda: "a\nb\r",
    "bytes": lambda: b"t",
    "bytes ff": lambda: b"\xff",
    "bytearray": lambda: bytearray(b"t"),
    "memoryview": lambda: memoryview(b"t"),
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "set": set,
    "generator": lambda: iter(()),
    "list of 5": lambda: [5],
    "list of None": lambda: [None],
    "list of t": lambda: ["t"],
    "list of surrogates": lambda: ["\ud800"],
    "list of floats": lambda: [5.0],
    "list of pairs": lambda: [("t", 0)],
    "generator of t": lambda: (item for item in ["t"]),
    "dict by 5": lambda: {5: "x"},
    "dict by x": lambda: {"x": 5},
    "dict by None": lambda: {None: None},
    "dict by surrogate": lambda: {"\ud800": "x"},
    "dict by pair": lambda: {("t", 0): 5.0},
    "list in itself": _list_in_itself,
    "dict in itself": _dict_in_itself,
    "object": object,
    "unprintable": Unprintable,
    "class": lambda: Anything,
    "function": lambda: lambda *_: None,
    "partition": lambda: TopicPartition("t", 0, 1),
    "list of partitions": lambda: [TopicPartition("t", 0, 1)],
    "dict by partition": lambda: {TopicPartition("t", 0): 1},
    "message": lambda: Message("t", 0, 1),
    "schema": lambda: pa.schema([("a", pa.int64())]),
    "table": lambda: pa.table({"a": [1]}),
    "error": lambda: ValueError("x"),
}

PARTITIONS: Final[dict[str, Callable[[], TopicPartition]]] = {
    "no partition": lambda: TopicPartition("t"),
    "no such partition": lambda: TopicPartition("t", 99, 1),
    "far partition": lambda: TopicPartition("t", 2**31 - 1, 1),
    "negative partition": lambda: TopicPartition("t", -(2**31), 1),
    "no such topic": lambda: TopicPartition("none", 0, 1),
    "empty topic": lambda: TopicPartition("", 0, 1),
    "odd topic": lambda: TopicPartition("a/../b\0", 0, 1),
    "internal topic": lambda: TopicPartition("__consumer_offsets", 0, 1),
    "typed topic": lambda: TopicPartition("typed", 0, 1),
    "far offset": lambda: TopicPartition("t", 0, 2**63 - 1),
    "negative offset": lambda: TopicPartition("t", 0, -(2**63)),
    "tail offset": lambda: TopicPartition("t", 0, -2005),
    "odd offset": lambda: TopicPartition("t", 0, -7),
    "long metadata": lambda: TopicPartition("t", 0, 1, "x" * 100_000),
    "far epoch": lambda: TopicPartition("t", 0, 1, "", 2**31 - 1),
    "numpy": lambda: TopicPartition("t", *cast(Any, (numpy.int64(0), numpy.uint8(1)))),
}
"""Partitions that a constructor takes, and that not every call can."""

OPTION_TEXTS: Final = (
    "", " ", "0", "-1", "1", "5.0", "nan", "inf", "1e3", "0x10", "1_000", "٣", "True", "yes", str(2**31), str(2**63 - 1),
    str(2**63), str(-(2**63) - 1), "9" * 5000, "\ud800", "a\0b", "t", "t,t", "t,,", "../x", "x" * 40_000, "{", "[]", "{}", "null",
    '{"t":5}', '{"t":[0.5]}', '{"t":[true]}', '{"t":[99999999999]}', '{"t":{"0":5.0}}', '{"t":{"0":NaN}}', '{"t":{"0":true}}',
    f'{{"t":{{"0":{2**63}}}}}', f'{{"t":{{"{2**31}":0}}}}', '{"\\ud800":{"0":0}}', '{"t":{"0":0,"0":1}}', "[" * 100_000, "latest", "earliest",
)  # fmt: skip
"""Texts for Spark's options, whose values are always text."""
