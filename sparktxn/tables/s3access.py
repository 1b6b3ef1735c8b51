"""What engines need to reach a store's files on S3: the store's own credentials, in each engine's words.

They are found anew for each call and kept nowhere here, so that a table shows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyarrow import fs

from sparktxn.config.store import storage_options
from sparktxn.objectstore.s3 import found_credentials
from sparktxn.objectstore.uri import parse_uri

if TYPE_CHECKING:
    import duckdb

__all__ = ["S3Access"]

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
        from sparktxn.objectstore.remote import parsed_storage

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
