"""What both ways of reading topics as tables ask of their callers: a store, a moment, a package; and access to S3."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from sparktxn._engine.objectstore.s3 import found_credentials
from sparktxn._engine.objectstore.uri import parse_uri
from sparktxn._foundation.config.store import storage_options
from sparktxn._foundation.values import arguments
from sparktxn._rows.scan.columns import leaves
from sparktxn.errors import ConfigurationError, extra_to_install
from sparktxn.store import Store

if TYPE_CHECKING:
    import duckdb
    import pandas as pd


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


# What engines need to reach a store's files on S3: the store's own credentials, in each engine's words.
#
# They are found anew for each call and kept nowhere here, so that a table shows none of them.

_S3: Final = "s3"


class S3Access:
    """What opens a folder on S3: settings of the store, and the credentials that AWS's own chain finds without them.

    Temporary credentials are those of this moment: an engine does not renew them.

    Raises:
        ConfigurationError: there are no credentials where the settings say that they are.
    """

    def __init__(self, folder: str, options: Mapping[str, Any]) -> None:
        self._folder = folder
        # Imported late: it needs fsspec, which the core is installed without.
        from sparktxn._engine.objectstore.remote import parsed_storage

        storage = parsed_storage(_S3, storage_options(options))
        client: Mapping[str, Any] = storage.get("client_kwargs") or {}
        self._anonymous = bool(storage.get("anon"))
        self._endpoint: str | None = storage.get("endpoint_url") or client.get("endpoint_url")
        self._region: str | None = client.get("region_name")
        self._key: str | None = storage.get("key") or client.get("aws_access_key_id")
        self._secret: str | None = storage.get("secret") or client.get("aws_secret_access_key")
        self._token: str | None = storage.get("token") or client.get("aws_session_token")
        if self._key is None and not self._anonymous:
            self._key, self._secret, self._token = found_credentials(storage.get("profile"))

    @classmethod
    def of(cls, folder: str, options: Mapping[str, Any]) -> S3Access | None:
        """Return what opens a folder; None if it is not on S3."""
        return cls(folder, options) if folder.startswith(f"{_S3}://") else None

    def arrow(self) -> fs.FileSystem:
        """Return a file system of pyarrow."""
        region = self._region
        if region is None and self._endpoint is None:
            region = fs.resolve_s3_region(parse_uri(self._folder).location.partition("/")[0])
        return fs.S3FileSystem(
            access_key=self._key,
            secret_key=self._secret,
            session_token=self._token,
            anonymous=self._anonymous,
            endpoint_override=self._endpoint,
            region=region,
        )

    def polars(self) -> dict[str, str]:
        """Return the `storage_options` of Polars."""
        named = {
            "aws_access_key_id": self._key,
            "aws_secret_access_key": self._secret,
            "aws_session_token": self._token,
            "aws_endpoint_url": self._endpoint,
            "aws_region": self._region,
            "aws_allow_http": "true" if self._endpoint is not None else None,
            "aws_skip_signature": "true" if self._anonymous else None,
        }
        return {name: value for name, value in named.items() if value is not None}

    def add_duckdb_secret(self, database: duckdb.DuckDBPyConnection) -> None:
        """Have a database of DuckDB read the folder: by a secret that ends with it, and which it does not show."""
        endpoint = urlsplit(self._endpoint) if self._endpoint is not None else None
        named = {
            "KEY_ID": self._key,
            "SECRET": self._secret,
            "SESSION_TOKEN": self._token,
            "REGION": self._region,
            "ENDPOINT": endpoint.netloc + endpoint.path.rstrip("/") if endpoint is not None else None,
            "URL_STYLE": "path" if endpoint is not None else None,
            "USE_SSL": endpoint.scheme != "http" if endpoint is not None else None,
            "SCOPE": f"{self._folder}/",
        }
        given = {name: value for name, value in named.items() if value is not None}
        asked = ", ".join(f"{name} ${name}" for name in given)
        # By parameters: the statement has no credential, wherever a database writes statements down.
        database.execute(f'CREATE OR REPLACE TEMPORARY SECRET "txnlog {self._folder}" (TYPE s3, {asked})', given)
