"""A store as a cell of a notebook shows it."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Final

from sparktxn.errors import KafkaException
from sparktxn.log.views.readview import ReadView
from sparktxn.values.notebooks import html_table

__all__ = ["shown_in_a_notebook"]

_SHOWN_S: Final = 5.0
"""How long a notebook waits for a store that it shows."""


def shown_in_a_notebook(title: str, view: Callable[[float], ReadView]) -> str:
    """Return HTML of what `view` returns within the seconds that it is called with, below `title`.

    A cell that ends with a store does not fail, whatever is wrong with the store: the error is shown.
    """
    try:
        found = view(_SHOWN_S)._repr_html_()
    except (KafkaException, RuntimeError) as error:
        found = html_table("no topics", (), [(error,)])
    return f"<p>{escape(title)}</p>{found}"
