"""What a coordinator stores to decide a prepared transaction (kafka PreparedTxnState)."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from sparktxn.values import arguments

__all__ = ["PreparedTransaction"]

_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,4})")


class PreparedTransaction(Struct, frozen=True):
    """The identity that prepared a transaction: no two prepared transactions of a store have the same one.

    Its text is ``producer id:epoch``; a database stores it in the transaction whose fate is to decide this one.
    """

    producer_id: int
    producer_epoch: int

    def __post_init__(self) -> None:
        force_setattr(self, "producer_id", arguments.integer("producer_id", self.producer_id, 0))
        producer_epoch = arguments.integer("producer_epoch", self.producer_epoch, 0, arguments.INT32_MAX)
        force_setattr(self, "producer_epoch", producer_epoch)

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Return the value whose `str()` is `text`.

        Raises:
            ValueError: `text` is not such a text.
        """
        text = arguments.text("text", text)
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{arguments.shown(text)} is not a prepared transaction: expected <producer id>:<epoch>, such as '7:0'"
            )
        return cls(int(found[1]), int(found[2]))
