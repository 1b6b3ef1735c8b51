"""A build whose machine handles a kind of command in another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from sparktxn._engine.state.rules import RULES


def handle(patch: pytest.MonkeyPatch, kind: type, handler: Callable[[Any, Any, Any], Any]) -> None:
    """Let `handler` apply commands of the kind for as long as the patch lasts."""
    patch.setitem(cast(dict[type, Any], RULES), kind, RULES[kind]._replace(handler=handler))
