"""Options of tables in Spark's catalog, which lives longer than the process that creates a table.

Spark passes the options of CREATE TABLE to `schema()` alone. They are kept in the metadata of the table's first column,
which comes back with the schema whenever the table is read or written. All users of the catalog can read them, so
credentials are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sparktxn import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["TABLE_OPTIONS_KEY", "is_create_table", "kept_options", "with_table_options", "without_table_properties"]

TABLE_OPTIONS_KEY: Final = "txnlog.options"

_TABLE_PREFIX: Final = "option."
"""CREATE TABLE hands its options over twice, once with this prefix, among properties of its own."""

_SECRET: Final = re.compile(r"key|secret|token|password|credential|sas|connection_string|jaas", re.IGNORECASE)
_SECRET_PREFIXES: Final = ("storage.", "kafka.")


def is_create_table(given: Mapping[str, str]) -> bool:
    """Return whether `given` are the options and properties of a table that is being created."""
    return any(name.lower().startswith(_TABLE_PREFIX) for name in given)


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
        ConfigurationError: an option may be a credential.
    """
    if not is_create_table(given):
        return None
    options = {name.lower(): value for name, value in without_table_properties(given).items()}
    for name, value in options.items():
        # Settings of the object store may be JSON with credentials in it.
        if name.startswith(_SECRET_PREFIXES) and (_SECRET.search(name) or ("{" in value and _SECRET.search(value))):
            raise ConfigurationError(
                f"option {name!r} may be a credential: a table's options are stored in the catalog as plain text. "
                "Leave it out, and give credentials by environment variables (AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY; for executors spark.executorEnv.*) or by a profile (option 'storage.profile'); "
                "or with each read and write of a DataFrame"
            )
    return options


def with_table_options(given: Mapping[str, str], schema: StructType, is_taken: Callable[[str], bool]) -> dict[str, str]:
    """Return the options of `given` over those that CREATE TABLE left in `schema`, as far as `is_taken` takes them."""
    kept: dict[str, str] = {}
    for field in schema.fields:
        kept.update(json.loads(field.metadata.get(TABLE_OPTIONS_KEY, "{}")))
    return {**{name: value for name, value in kept.items() if is_taken(name)}, **given}
