"""Creating a topic, and altering one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from sparktxn.admin.configs import describe_configs
from sparktxn.admin.topicchange import Column, TopicChange, alter_topic, parse_column
from sparktxn.admin.topics import changeable_topic, create_topic
from sparktxn.console.changes.change import Change, Field, Planned, Row
from sparktxn.console.requestparameters import RequestParameters, WrongRequest
from sparktxn.console.shown import query, segment_path, visible
from sparktxn.console.shownstore import Source
from sparktxn.kafka.admin import ConfigResource, NewTopic
from sparktxn.state.limits import PARTITION_COUNT_MAX

__all__ = ["TopicAlteration", "TopicCreation"]

_COLUMNS_HELP = "One column a line: NAME TYPE, or NAME TYPE not null, such as: id int64 not null"


def _columns(asked: RequestParameters) -> tuple[Column, ...]:
    return tuple(parse_column("columns:", line) for line in asked.lines("columns"))


class TopicCreation(Change, frozen=True):
    """A new topic."""

    kind: ClassVar = "create-topic"
    verb: ClassVar = "Create the topic"

    topic: str
    partitions: int
    settings: Mapping[str, str]
    columns: tuple[Column, ...]

    @classmethod
    def title(cls, asked: RequestParameters) -> str:
        """Return the heading."""
        return "Create a topic"

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return the fields of its form."""
        text = asked.entered
        return [
            Field(name="topic", label="Name", value=text("topic"), required=True),
            Field(name="partitions", label="Partitions", kind="number", value=text("partitions") or "1", required=True),
            Field(
                name="settings",
                label="Settings",
                kind="lines",
                value=text("settings"),
                help="One setting a line: name=value. Others have their defaults.",
            ),
            Field(
                name="columns",
                label="Columns",
                kind="lines",
                value=text("columns"),
                help=f"{_COLUMNS_HELP}. Without any: Kafka's key, value and headers.",
            ),
        ]

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the topic that a form asks for."""
        if not asked.has("topic"):
            raise WrongRequest("the topic has no name: expected one")
        partitions = asked.count("partitions", 1, most=PARTITION_COUNT_MAX)
        return cls(asked.text("topic"), partitions, asked.settings("settings"), _columns(asked))

    def planned(self, source: Source) -> Planned:
        """Return the topic that would be made."""
        create_topic(source.log, self._new(), validate_only=True)
        return Planned(rows=[self._row(is_created=False)])

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Create it."""
        create_topic(source.log, self._new(), validate_only=False)
        return [self._row(is_created=True)]

    def address(self) -> str:
        """Return the topic's page."""
        return f"/topics/{segment_path(self.topic)}"

    def _new(self) -> NewTopic:
        return NewTopic(self.topic, self.partitions, config=dict(self.settings), schema=list(self.columns) or None)

    def _row(self, *, is_created: bool) -> Row:
        columns = [f"{name} {type_}{'' if null else ' not null'}" for name, type_, null in self.columns]
        return {
            "topic": self.topic,
            "partition_count": self.partitions,
            "settings": [f"{name}={value}" for name, value in self.settings.items()],
            "columns": columns,
            "created": is_created,
        }


class TopicAlteration(Change, frozen=True):
    """Other settings of a topic, more partitions, more columns."""

    kind: ClassVar = "alter-topic"
    verb: ClassVar = "Alter the topic"
    subject: ClassVar = ("topic",)

    change: TopicChange

    @classmethod
    def title(cls, asked: RequestParameters) -> str:
        """Return the heading."""
        return f"Alter topic {visible(asked.text('topic'), 80)}"

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return the fields of its form, which say how the topic is now."""
        source.log.refresh()
        topic = changeable_topic(source.log, asked.text("topic"))
        own = ", ".join(f"{name}={value}" for name, value in sorted(topic.settings.items())) or "none"
        text = asked.entered
        found = [
            Field(
                name="partitions",
                label="Partitions",
                kind="number",
                value=text("partitions"),
                help=f"It has {topic.partition_count}: the number only grows.",
            ),
            Field(
                name="settings",
                label="Settings to set",
                kind="lines",
                value=text("settings"),
                help=f"One setting a line: name=value. It has set: {visible(own, 400)}.",
            ),
            Field(
                name="unset",
                label="Settings to unset",
                kind="lines",
                value=text("unset"),
                help="One name a line: these return to the store's values.",
            ),
        ]
        if topic.schema is not None:
            help_ = f"{_COLUMNS_HELP.partition(':')[0]}: NAME TYPE. Earlier records have null there."
            found.append(Field(name="columns", label="New columns", kind="lines", value=text("columns"), help=help_))
        return found

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the changes that a form asks for."""
        change = TopicChange(
            topic=asked.text("topic"),
            settings=asked.settings("settings"),
            unset=tuple(asked.lines("unset")),
            columns=_columns(asked),
            partition_count=asked.number("partitions", least=1, most=PARTITION_COUNT_MAX),
        )
        if not (change.settings or change.unset or change.columns or change.partition_count):
            raise WrongRequest("nothing to alter is given: expected settings, partitions or columns")
        return cls(change)

    def planned(self, source: Source) -> Planned:
        """Return each part that would be altered, as it is and as it would be."""
        change = self.change
        alter_topic(source.log, change, validate_only=True)
        topic = changeable_topic(source.log, change.topic)
        now = describe_configs(source.log, ConfigResource(ConfigResource.Type.TOPIC, change.topic))
        rows: list[Row] = [
            {"part": f"setting {name}", "now": now[name].value if name in now else None, "then": value}
            for name, value in {**change.settings, **dict.fromkeys(change.unset, "not set: as the store")}.items()
        ]
        rows += [{"part": f"column {name}", "now": None, "then": type_} for name, type_, _ in change.columns]
        if change.partition_count is not None:
            rows.append({"part": "partitions", "now": topic.partition_count, "then": change.partition_count})
        basis = (topic.topic_id, topic.partition_count, dict(topic.settings), topic.schema)
        return Planned(rows=rows, basis=basis)

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Alter it."""
        alter_topic(source.log, self.change)
        return [{**row, "altered": True} for row in planned.rows]

    def address(self) -> str:
        """Return the topic's page."""
        return query(f"/topics/{segment_path(self.change.topic)}")
