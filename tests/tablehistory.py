"""Random histories whose topics are tables of other engines, with the rows that each version must have."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from sparktxn import Store
from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.mergedhistory import MergedHistory, Row, columns_of

__all__ = ["NAMES", "TableHistory"]

NAMES: Final = {"_partition": PARTITION_COLUMN, "partition": PARTITION_COLUMN}
"""What the model's columns are called in a table."""


class TableHistory(MergedHistory):
    """A history whose topics are Delta and Iceberg tables; `topics` has their ids."""

    settings = MappingProxyType({"table.formats": "delta,iceberg"})

    def __init__(self, store: Store, seed: int) -> None:
        super().__init__(store, seed)
        self.topics = {topic.name: topic.topic_id for topic in store.topics()}

    def keep_history(self, topics: Iterable[str], history_ms: int) -> None:
        """Have versions of tables kept for so long."""
        for topic in topics:
            entry = ConfigEntry("table.history.ms", str(history_ms), incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource("topic", topic, incremental_configs=[entry])
            self.admin.incremental_alter_configs([resource])[resource].result()

    def set_formats(self, topic: str, formats: str) -> None:
        """Have a topic be a table in some formats, with commas between them; in none if the text is empty."""
        kind = AlterConfigOpType.SET if formats else AlterConfigOpType.DELETE
        entry = ConfigEntry("table.formats", formats or None, incremental_operation=kind)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result()

    def in_files(self, topic: str, entry: int) -> tuple[list[str], list[Row]]:
        """Return the model's columns that files have, and the rows of a view in them."""
        columns = [name for name in columns_of(topic, self.seen[entry]) if "entry" not in name]
        place = 2  # of the entry that committed a row, which no file has
        return columns, [(*row[:place], *row[place + 1 :]) for row in self.expected(topic, entry)]
