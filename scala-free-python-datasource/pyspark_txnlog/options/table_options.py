"""What a use of a table in Spark's catalog is given: its own options, and those that the table keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark_txnlog.options.catalog import options_in, rows_are_of_a_table
from pyspark_txnlog.options.options import INSERT_ALWAYS, WRITE, option_named
from sparktxn import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["options_of_table"]

_TARGET_UNKNOWN: Final = (
    "the rows are as they were read from a table of format txnlog, and Spark does not say which table they are written "
    f"to. {INSERT_ALWAYS}; in Python it is df.write.format('txnlog') with these options"
)


def options_of_table(given: Mapping[str, str], schema: StructType, use: str) -> dict[str, str]:
    """Return the options of `given` over those that a catalog's table keeps for `use`, a read or a batch write.

    A table keeps what reads and writes of it need, in batches and in streams: each takes what it knows. With a path
    `given` is complete: then `schema` has the options of a table that the rows, or the schema, were taken from.

    Raises:
        ConfigurationError: a write has no path, and the rows' metadata is that of a table that they were read from.
    """
    if any(_is_path(name) for name in given):
        return dict(given)
    if use == WRITE and rows_are_of_a_table(schema):
        raise ConfigurationError(_TARGET_UNKNOWN)
    kept = {name: value for name, value in options_in(schema).items() if _is_taken(name, use)}
    return {**kept, **given}


def _is_path(name: str) -> bool:
    option = option_named(name.lower())
    return option is not None and option.name == "path"


def _is_taken(name: str, use: str) -> bool:
    option = option_named(name)
    return option is None or option.name == "table" or use in option.uses
