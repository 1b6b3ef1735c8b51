"""What both ways of reading topics as tables ask of their callers: a store, a moment, and a package."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.errors import ConfigurationError, extra_to_install
from sparktxn.scan.leaves import leaves
from sparktxn.store import Store
from sparktxn.values import arguments

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AsOf", "Moment", "imported", "moment_of", "opened", "pandas_frame"]

AsOf: TypeAlias = int | datetime | str | None
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FLOAT_WHOLE_MAX: Final = 2**53


class Moment(TypedDict, total=False):
    """An entry, or a time: what views and snapshots of the log take; now if it has neither."""

    entry: int
    timestamp_ms: int


def opened(
    uri: str | os.PathLike[str] | Store, options: Mapping[str, Any] | None
) -> AbstractContextManager[Store, bool | None]:
    """Return a context that has the store, and closes it if `uri` is an address.

    Raises:
        ConfigurationError: options are given with an open store, or one of them is wrong.
        StoreNotFound: there is no store.
    """
    if not isinstance(uri, Store):
        return Store.open(uri, options=options)
    if options is not None:
        raise ConfigurationError("options are given with an open store: give them to Store.open")
    return nullcontext(uri)


def imported(package: str) -> Any:
    """Return a package that a caller needs only for some calls, and that an extra of its name brings.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(f"{package} is not installed: {extra_to_install(package)}", name=package) from None


def moment_of(store: Store, as_of: AsOf) -> Moment:
    """Return the moment that a caller names.

    Raises:
        TypeError: `as_of` is not an entry, time or transaction.
        ConfigurationError: it is one that cannot be, or a transaction that is not known.
    """
    if as_of is None:
        return {}
    if isinstance(as_of, str):
        try:
            return {"entry": store.transaction_entry(arguments.text("as_of", as_of))}
        except ConfigurationError as error:
            raise ConfigurationError(f"as_of: {error}") from None
    if isinstance(as_of, datetime):
        return {"timestamp_ms": _milliseconds(as_of)}
    if isinstance(as_of, int) and not isinstance(as_of, bool):
        return {"entry": arguments.integer("as_of", as_of, 0)}
    raise TypeError(
        f"as_of is {arguments.described(as_of)}: expected an entry (int), a time (datetime) or a transaction (str)"
    )


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """Return a DataFrame whose whole numbers are exact.

    A column of whole numbers that has nulls has floats, as in pandas. If one of them is none of a float's, such columns
    have Python's numbers and None.
    """
    frame: pd.DataFrame = table.to_pandas(integer_object_nulls=any(map(_is_rounded, table.columns)))
    return frame


def _is_rounded(column: pa.ChunkedArray) -> bool:
    """Return whether floats would have other numbers than a column of whole numbers with nulls."""
    for leaf in (leaf for chunk in column.chunks for leaf in leaves(chunk)):
        if pa.types.is_int64(leaf.type) and leaf.null_count < len(leaf):
            found = pc.min_max(leaf)
            if max(abs(found["min"].as_py()), abs(found["max"].as_py())) > _FLOAT_WHOLE_MAX:
                return True
    return False


def _milliseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ConfigurationError(f"as_of is {moment}, a time without a zone: add one, as in .replace(tzinfo=UTC)")
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ConfigurationError(f"as_of is {moment}: expected a time from 1970 on")
    return milliseconds
