"""Options of tables in Spark's catalog, which lives longer than the process that creates a table.

Spark passes the options of CREATE TABLE to `schema()` alone. They are kept in the metadata of one of the table's
columns, which comes back with the schema whenever the table is read or written. All users of the catalog can read them,
so credentials are refused.

Rows that were read from a table have its metadata, too. Where Spark needs no projection to write them to another table,
the writer is given the metadata of the first one. It is never given a table's name. `READ_MARK` shows such rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import AtomicType

from pyspark_txnlog.sparkinternals import DECLARED_TYPE
from sparktxn import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

TABLE_OPTIONS_KEY: Final = "txnlog.options"

READ_MARK: Final = DECLARED_TYPE
"""Where Spark removes it, rows have the form of a table. The type here is the column's own, which changes nothing."""

_TABLE_PREFIX: Final = "option."
"""CREATE TABLE hands its options over twice, once with this prefix, among properties of its own."""

_TABLE_PROPERTIES: Final = frozenset({"owner", "provider"})
"""What Spark adds for every table."""

_SECRET: Final = re.compile(
    r"key|secret|token|password|credential|sas(?!l)|connection_string|jaas|authorization", re.IGNORECASE
)
_USER_IN_ADDRESS: Final = re.compile(r"://[^/?#\s]*@")
"""In front of the host there may be a password."""
_SECRET_PREFIXES: Final = ("storage.", "kafka.")


def is_create_table(given: Mapping[str, str]) -> bool:
    """Return whether `given` are the options and properties of a table that is being created.

    A table without any option but its path has no name with the prefix, only properties.
    """
    names = {name.lower() for name in given}
    return names >= _TABLE_PROPERTIES or any(name.startswith(_TABLE_PREFIX) for name in names)


def without_table_properties(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of `given`, which for CREATE TABLE holds the table's properties too."""
    if not is_create_table(given):
        return given
    options = {
        name[len(_TABLE_PREFIX) :]: value for name, value in given.items() if name.lower().startswith(_TABLE_PREFIX)
    }
    # Spark takes the path for the place of the table's own files.
    location = {name: given["location"] for name in ("path",) if "location" in given and "path" not in options}
    return {**options, **location}


def kept_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return what a table that is being created keeps of its options; None if `given` creates none.

    Raises:
        ConfigurationError: an option may be a credential. Spark itself stores the options in its catalog in any case.
    """
    if not is_create_table(given):
        return None
    options = {name.lower(): value for name, value in without_table_properties(given).items()}
    for name, value in options.items():
        if name.startswith(_SECRET_PREFIXES) and _may_be_secret(name, value):
            raise ConfigurationError(
                f"option {name!r} may be a credential: a table's options are stored in the catalog as plain text. "
                "Leave it out, and give credentials by environment variables (AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY; for executors spark.executorEnv.*) or by a profile (option 'storage.profile'); "
                "or with each read and write of a DataFrame"
            )
    return options


def _may_be_secret(name: str, value: str) -> bool:
    """Return whether a setting's name says so, or its value: JSON with such a name in it, or an address with a user."""
    in_json = "{" in value and _SECRET.search(value)
    return bool(_SECRET.search(name) or in_json or _USER_IN_ADDRESS.search(value))


def keep_options(fields: Sequence[StructField], options: Mapping[str, str]) -> None:
    """Put the options of a table into the metadata of its first column, with the mark of rows that are read from it.

    Spark parses the type in the mark, so the column is one of a plain type where there is one.
    """
    plain = [field for field in fields if isinstance(field.dataType, AtomicType)]
    metadata = {TABLE_OPTIONS_KEY: json.dumps(options)}
    if plain:
        plain[0].metadata = {**metadata, READ_MARK: plain[0].dataType.simpleString()}
    else:
        fields[0].metadata = metadata


def options_in(schema: StructType) -> dict[str, str]:
    """Return the options that CREATE TABLE left in `schema`."""
    kept: dict[str, str] = {}
    for field in schema.fields:
        kept.update(json.loads(field.metadata.get(TABLE_OPTIONS_KEY, "{}")))
    return kept


def rows_are_of_a_table(schema: StructType) -> bool:
    """Return whether rows of `schema` are as they were read from a table; False if they have the form of a target."""
    return any(TABLE_OPTIONS_KEY in field.metadata and READ_MARK in field.metadata for field in schema.fields)
