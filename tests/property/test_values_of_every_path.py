"""Hostile values through every way in and out that needs no JVM: they come back bit by bit, or are refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sparktxn import (
    ConfigurationError,
    Consumer,
    KafkaException,
    Producer,
    Store,
    read_arrow,
    to_duckdb,
    to_pandas,
    to_polars,
)
from sparktxn.transfer import export_topic, import_files, import_from_store, import_topic
from tests.cli.terminal import ok, txnlog
from tests.hostiletables import plain, random_table, records
from tests.seeds import examples, seed_of
from tests.world import next_number

REFUSALS = (
    ConfigurationError,
    ValueError,
    OverflowError,
    KafkaException,
    TypeError,
    NotImplementedError,
    pa.ArrowException,
    pl.exceptions.PolarsError,
)
"""A way may refuse a value: the product's own errors, or other libraries' before they hand anything over."""


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(f"memory://values-{next_number()}", create=True) as opened:
        yield opened


class Ways:
    """The ways of a topic's rows into another topic with the same columns."""

    def __init__(self, store: Store, folder: Path, schema: pa.Schema, source: str) -> None:
        self.store = store
        self.folder = folder
        self.schema = schema
        self.source = source
        self.names = schema.names

    def all(self) -> dict[str, Callable[[str], object]]:
        """Return the ways by name; each takes the name of the topic to write to."""
        return {
            **{file_format: self._file_of(file_format) for file_format in ("parquet", "arrow", "csv", "json")},
            "consume, produce": self._through_commands,
            "consume, import": self._printed_file,
            "consume --json, produce": self._through_json,
            "consume_arrow": self._consumed,
            "import of a topic": lambda topic: import_from_store(self.store, topic, self.store, self.source),
            "pandas": self._through_pandas,
            "polars": lambda topic: self.produce(topic, to_polars(self.store, self.source, columns=self.names)),
            "duckdb": lambda topic: self.produce(topic, to_duckdb(self.store, self.source, columns=self.names).arrow()),
            "parquet of polars": self._of_polars,
            "parquet of arrow": self._parquet_of_arrow,
            "csv of arrow": self._csv_of_arrow,
            "csv of pandas": self._csv_of_pandas,
        }

    def rows(self, topic: str) -> pa.Table:
        """Return a topic's rows."""
        return read_arrow(self.store, topic, columns=self.names).read_all()

    def produce(self, topic: str, rows: Any) -> None:
        """Write rows as a producer does."""
        with Producer({"bootstrap.servers": self.store.uri}) as producer:
            producer.produce_arrow(topic, rows)

    def _file_of(self, file_format: str) -> Callable[[str], None]:
        def through(topic: str) -> None:
            out = self.folder / topic
            export_topic(self.store, self.source, out, file_format=file_format, columns=self.names)
            import_files(self.store, topic, sorted(out.rglob("part-*")))

        return through

    def _through_commands(self, topic: str) -> None:
        printed = self._command("consume", "-t", self.source, "-e")
        self._command("produce", "-t", topic, stdin=printed)

    def _printed_file(self, topic: str) -> None:
        file = self.folder / f"{topic}.jsonl"
        file.write_bytes(self._command("consume", "-t", self.source, "-e"))
        import_files(self.store, topic, [file])

    def _through_json(self, topic: str) -> None:
        printed = self._command("consume", "-t", self.source, "-e", "--json")
        values = [json.dumps(json.loads(line)["value"]) for line in printed.splitlines()]
        self._command("produce", "-t", topic, stdin="\n".join(values).encode())

    def _command(self, *words: str, stdin: bytes = b"") -> bytes:
        done = txnlog(*words, "--store", self.store.uri, stdin=stdin)
        if done.code:
            assert done.code in (1, 2), done.err
            assert "Traceback" not in done.err
            raise ConfigurationError(done.err)
        return done.out

    def _through_pandas(self, topic: str) -> None:
        # Of numpy's floats NaN is null: columns of Arrow's types have both.
        to_pandas(self.store, self.source, columns=self.names)
        self.produce(topic, self.rows(self.source).to_pandas(types_mapper=pd.ArrowDtype))

    def _consumed(self, topic: str) -> None:
        settings = {"bootstrap.servers": self.store.uri, "group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer(settings) as consumer:
            consumer.subscribe([self.source])
            rows = consumer.consume_arrow(1_000, 60)
        assert rows is not None
        self.produce(topic, rows.select(self.names))

    def _of_polars(self, topic: str) -> None:
        file = self.folder / f"{topic}.parquet"
        to_polars(self.store, self.source, columns=self.names).write_parquet(file)
        import_files(self.store, topic, [file])

    def _parquet_of_arrow(self, topic: str) -> None:
        """With pages, encodings and indexes that no segment has."""
        file = self.folder / f"{topic}.parquet"
        rows = self.rows(self.source)
        pq.write_table(
            rows, file, compression="snappy", data_page_version="2.0", row_group_size=3, write_page_index=True
        )
        import_files(self.store, topic, [file])

    def _csv_of_arrow(self, topic: str) -> None:
        file = self.folder / f"{topic}.csv"
        pa.csv.write_csv(self.rows(self.source), file)
        import_files(self.store, topic, [file])

    def _csv_of_pandas(self, topic: str) -> None:
        # pandas writes null and an empty text alike: only columns that do not have both can come back.
        file = self.folder / f"{topic}.csv"
        rows = self.rows(self.source)
        unclear = [name for name in self.names if pa.types.is_string(rows.schema.field(name).type)]
        if unclear or any(pa.types.is_nested(kind) or pa.types.is_binary(kind) for kind in rows.schema.types):
            raise ConfigurationError("pandas has no CSV of these")
        rows.to_pandas(types_mapper=pd.ArrowDtype).to_csv(file, index=False)
        import_files(self.store, topic, [file])


def test_tables_come_back_or_are_refused(store: Store, tmp_path: Path) -> None:
    random = Random(seed_of("values of every path"))
    kept: dict[str, int] = {}
    for number in range(examples(6, 80)):
        table = random_table(random, random.randint(1, 7), random.choice([1, 5, 20]))
        source = f"s{number}"
        store.create_topic(source, 1, schema=table.schema)
        ways = Ways(store, tmp_path, table.schema, source)
        ways.produce(source, table)
        wanted = [plain(column) for column in table.columns]
        assert [plain(column) for column in ways.rows(source).columns] == wanted, table.schema
        for index, (name, way) in enumerate(ways.all().items()):
            topic = f"t{number}-{index}"
            store.create_topic(topic, 1, schema=table.schema)
            try:
                way(topic)
            except REFUSALS:
                assert ways.rows(topic).num_rows == 0, (name, table.schema)
                continue
            kept[name] = kept.get(name, 0) + 1
            assert [plain(column) for column in ways.rows(topic).columns] == wanted, (name, number, table.schema)
    own = ["parquet", "arrow", "csv", "json", "consume, produce", "consume, import", "consume_arrow"]
    assert kept["import of a topic"] == examples(6, 80)
    assert all(kept.get(name, 0) > examples(6, 80) // 2 for name in own), kept


def test_records_come_back_or_are_refused(store: Store, tmp_path: Path) -> None:
    random = Random(seed_of("records of every path"))
    for number in range(examples(3, 80)):
        given = records(random, random.choice([1, 5, 20]))
        source = f"s{number}"
        store.create_topic(source, 1)
        with Producer({"bootstrap.servers": store.uri}) as producer:
            for record in given:
                producer.produce(source, **record)
        wanted = [(one["key"], one["value"], one["headers"] or None, one["timestamp"]) for one in given]
        assert consumed(store, source) == wanted
        assert printed(store, source) == wanted
        for file_format in ("parquet", "arrow", "csv", "json"):
            topic = f"{file_format}{number}"
            store.create_topic(topic, 1)
            try:
                export_topic(store, source, tmp_path / topic, file_format=file_format)
            except ConfigurationError:
                assert file_format == "csv"
                continue
            import_files(store, topic, sorted((tmp_path / topic).rglob("part-*")))
            assert consumed(store, topic) == wanted, file_format
        store.create_topic(f"kafka{number}", 1)
        settings = {"bootstrap.servers": store.uri, "group.id": "unused", "enable.partition.eof": True}
        with Consumer(settings) as consumer:
            import_topic(store, f"kafka{number}", consumer, source, name=source)
        assert consumed(store, f"kafka{number}") == wanted
        store.create_topic(f"imported{number}", 1)
        import_from_store(store, f"imported{number}", store, source)
        assert consumed(store, f"imported{number}") == wanted


def consumed(store: Store, topic: str) -> list[Any]:
    """Return a topic's records as a consumer hands them out."""
    settings = {"bootstrap.servers": store.uri, "group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer(settings | {"enable.partition.eof": True}) as consumer:
        consumer.subscribe([topic])
        found = []
        while (message := consumer.poll(60)) is not None and message.error() is None:
            found.append((message.key(), message.value(), message.headers() or None, message.timestamp()[1]))
    return found


def printed(store: Store, topic: str) -> list[Any]:
    """Return a topic's records as `txnlog consume --json` prints them."""
    return [
        (
            bytes_of("key", row),
            bytes_of("value", row),
            [(header["name"], bytes_of("value", header)) for header in row["headers"]] or None,
            row["timestamp_ms"],
        )
        for row in map(json.loads, ok("consume", "-t", topic, "-e", "--json", "--store", store.uri).out.splitlines())
    ]


def bytes_of(name: str, row: dict[str, Any]) -> bytes | None:
    """Return bytes of a JSON object, that are text or base64."""
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"])
    return None if row[name] is None else row[name].encode()
