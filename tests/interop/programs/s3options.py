"""What a store's ``storage.*`` settings are called by engines that find a table by its location (docs/tables.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def delta_options(options: Mapping[str, Any]) -> dict[str, str]:
    """The `storage_options` of delta-rs and of Polars."""
    return {
        "aws_access_key_id": options["storage.key"],
        "aws_secret_access_key": options["storage.secret"],
        "aws_endpoint_url": options["storage.endpoint_url"],
        "aws_allow_http": "true",
    }


def iceberg_properties(options: Mapping[str, Any]) -> dict[str, str]:
    """The properties of pyiceberg; without a region it asks AWS for that of the bucket."""
    return {
        "s3.access-key-id": options["storage.key"],
        "s3.secret-access-key": options["storage.secret"],
        "s3.endpoint": options["storage.endpoint_url"],
        "s3.region": "us-east-1",
    }
