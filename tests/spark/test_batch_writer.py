"""The batch writer as Spark calls it, without a session: planned and committed on the driver, staged in tasks."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from pyspark_txnlog.options.options import WRITE, WriteOptions
from pyspark_txnlog.writing.batch_writer import StagedRows, TxnLogWriter, stage_rows
from sparktxn import BatchRefused, Store

VALUE = StructType().add("value", "binary")


def commit(store: Store, *values: bytes, **options: str) -> None:
    """One write of the values, by one task."""
    given = {"path": store.uri, "topic": "t", **options}
    writer = TxnLogWriter(WriteOptions.parse(given, WRITE), VALUE, False)
    rows = pa.record_batch({"value": pa.array(values, pa.binary())})
    writer.commit([StagedRows(stage_rows(writer._plan, "t", iter([rows])))])


def test_a_version_that_is_not_above_the_last_one_is_skipped(store: Store) -> None:
    store.create_topic("t")

    def commit_version(version: int, rows: int, **options: str) -> None:
        commit(store, *[b"v"] * rows, txnappid="app", txnversion=str(version), **options)

    for version in range(1, 31):
        commit_version(version, 1)
    entry = store.view().entry
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        commit_version(2, 3)
    with pytest.warns(UserWarning, match="version 30 of application 'app' is skipped: it is committed with other rows"):
        commit_version(30, 3, onreplaymismatch="skip")
    with pytest.raises(
        BatchRefused, match=r"committed 1 rows in entry .*, and has 3 rows now.* a txnVersion that is new"
    ):
        commit_version(30, 3)
    with pytest.raises(BatchRefused, match="below the last committed one, 30, and no longer remembered"):
        commit_version(2, 3, onreplaymismatch="fail")
    assert store.view().entry == entry
