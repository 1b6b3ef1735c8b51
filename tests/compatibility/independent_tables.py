"""Tables for other engines in the state, by the words of docs/PROTOCOL.md alone."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
Command = dict[str, Any]

RUN_COMMITTED = 12
"""Where the tuple of a run has the greatest committed entry of its segments."""
NOWHERE: list[Any] = [0, []]


class Tables:
    """The commands of tables, for a replay."""

    def publish_tables(self: Any, command: Command) -> None:
        entry, planned = command["entry"], command["planned_entry"]
        self.need(0 <= entry <= planned < self.entry, "a version shows an entry of the future")
        ids = [wanted[1] for wanted in command["tables"]]
        self.need(ids and len(set(ids)) == len(ids), "a publication has no table, or one twice")
        self.need("tables" in self.store()["reader_features"], "the store does not require the feature of tables")
        for wanted in command["tables"]:
            self._publish(command, *wanted)
        self.remember(command)

    def _publish(
        self: Any,
        command: Command,
        name: str,
        topic_id: int,
        version: int,
        location: str,
        first: int,
        column_count: int,
        log_starts: list[int],
    ) -> None:
        table, topic = self.get("table", topic_id), self.get("topic", name)
        if topic is not None and topic["topic_id"] != topic_id:
            topic = None
        self.need(topic is not None or (table is not None and table["name"] == name), "there is no such table")
        self.need(1 <= len(location.encode()) <= 4_096, "a location is empty or too long")
        self.need(version == (table["version"] + 1 if table else 0), "it is not the next version")
        self.need(command["entry"] >= (table["entry"] if table else 0), "a version shows less than the one before")
        kept = table["kept"] if table else []
        self.need(first in (*(each[0] for each in kept), version), "the first version is not one that is kept")
        self._check_topic(command, topic, column_count, log_starts)
        described = self._described(topic, table)
        is_new_schema = topic is not None and (table is None or table["columns"] != topic["schema"])
        places = [
            self._places(topic, number, log_starts) if topic is not None else NOWHERE
            for number in range(described["partition_count"])
        ]
        changed = [self._publish_places(topic_id, number, version, each) for number, each in enumerate(places)]
        left = [each for each in kept if each[0] >= first]
        left = left[::2] if len(left) >= 128 else left
        self.put(
            {
                "type": "table",
                "topic_id": topic_id,
                "name": name,
                "version": version,
                "entry": command["entry"],
                "entry_before": table["entry"] if table else 0,
                "published_entry": self.entry,
                "timestamp_ms": self.timestamp_ms,
                "location": location,
                "is_new_schema": is_new_schema,
                "changed_version": version if any(changed) or is_new_schema else table["changed_version"],
                "kept": [*left, [version, self.entry, self.timestamp_ms]],
                "is_deleted": topic is None,
                **described,
            }
        )

    def _check_topic(
        self: Any, command: Command, topic: Record | None, column_count: int, log_starts: list[int]
    ) -> None:
        if topic is None:
            self.need(not column_count and not log_starts, "the version of a deleted topic is not empty")
            return
        default = self.store().get("settings", {}).get("message.timestamp.type")
        time = topic["settings"].get("message.timestamp.type", default)
        self.need(topic["settings"].get("table.formats"), "the topic is not a table")
        self.need(time != "LogAppendTime", "the times of a table's records are those of entries")
        self.need(column_count == len(topic["schema"] or ()), "the topic has other columns")
        self.need(len(log_starts) == topic["partition_count"], "the topic has other partitions")
        for number, start in enumerate(log_starts):
            self.need(self.get("partition", topic["topic_id"], number)["log_start_offset"] == start, "it is cut since")
            for _, _, at, run in self.get("segments", topic["topic_id"], number)["rewritten"]:
                self.need(at <= command["planned_entry"], "it has other files since")
                self.need(run[RUN_COMMITTED] <= command["entry"], "a file has what is younger than the version")

    def _described(self: Any, topic: Record | None, table: Record | None) -> Record:
        if topic is None:
            return {member: table[member] for member in ("partition_count", "columns", "formats")} if table else {}
        formats = topic["settings"]["table.formats"].split(",")
        return {"partition_count": topic["partition_count"], "columns": topic["schema"], "formats": formats}

    def _places(self: Any, topic: Record, number: int, log_starts: list[int]) -> list[Any]:
        return [log_starts[number], self.get("segments", topic["topic_id"], number)["rewritten"]]

    def _publish_places(self: Any, topic_id: int, number: int, version: int, places: list[Any]) -> bool:
        """Note the places of a partition's files; return whether they have changed."""
        known = self.get("published", topic_id, number)
        before = known["current"] if known else NOWHERE
        if places == before:
            return False
        where = {"topic_id": topic_id, "partition": number}
        self.put({"type": "published", **where, "version": version, "current": places, "before": before})
        return True
