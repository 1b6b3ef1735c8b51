"""Which columns a read has: those of its topics in the view, and those that they have gained elsewhere, null there.

Every reader that names columns asks this module: batches, streams, reads of the past, exports. A column is known if a
topic has it in the view or has it now. Only nullable columns are added, so a topic without one reads as null.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from sparktxn.errors import ConfigurationError
from sparktxn.scan.columns import known_columns
from sparktxn.values.fieldtypes import Columns
from sparktxn.values.structs import TopicState

if TYPE_CHECKING:
    # A task that writes for Spark needs neither.
    from sparktxn.log.log import Log
    from sparktxn.log.views.readview import ReadView

__all__ = ["one_layout", "with_columns"]

_Layout: TypeAlias = dict[str, tuple[str, str, bool]]


def one_layout(topics: Iterable[TopicState]) -> Columns | None:
    """Return the declared columns of a read of all `topics`; None for Kafka's record, or for no topic.

    Topics of one read begin with the same columns. What only some of them have gained since is null in the others.

    Raises:
        ConfigurationError: they do not begin alike, or have a column with two types, or one that is not nullable.
    """
    first: TopicState | None = None
    layout: _Layout | None = None
    for topic in topics:
        own = None if topic.schema is None else {column[0].lower(): column for column in topic.schema}
        if first is None:
            first, layout = topic, own
        elif layout is None or own is None or _differ(layout, own):
            if first.schema == topic.schema:
                continue
            raise ConfigurationError(
                f"topics {first.name!r} and {topic.name!r} do not have the same columns: one read takes topics of one "
                "layout, whose later columns are nullable and of one type; read them one by one"
            )
        else:
            layout = layout | {name: column for name, column in own.items() if name not in layout}
    return None if layout is None else tuple(layout.values())


def _differ(layout: _Layout, own: _Layout) -> bool:
    """Return whether one read cannot take both: by names in lower case, as engines compare them."""
    both = layout | own
    return (
        next(iter(layout.values())) != next(iter(own.values()))
        or any(layout[name] != own[name] for name in layout.keys() & own.keys())
        or not all(both[name][2] for name in layout.keys() ^ own.keys())
    )


def with_columns(view: ReadView, names: Sequence[str] | None, log: Log) -> ReadView:
    """Return `view` with the columns of `names` in each topic with declared columns that lacks some; they are null.

    Args:
        view: topics at an entry.
        names: what a read asks for; None: all columns that a topic of the view has, or has gained since. A name that
            no topic has is left to the error of the read.
        log: the log of the view, which is followed only for what the view does not have.

    Raises:
        OutcomeUnknown, StoreUnavailable, DamagedObject: as `Log.refresh`.
    """
    typed = [topic for topic in view.topics.values() if topic.schema is not None]
    if names is not None and all(_has(topic, names) for topic in typed):
        return view
    log.refresh()
    later = [topic for topic in (log.topic(topic.name) for topic in typed) if topic is not None]
    gained: dict[str, tuple[str, str, bool]] = {}
    for topic in (*typed, *later):
        for name, declared, _ in topic.schema or ():
            gained.setdefault(name, (name, declared, True))
    added = [gained[name] for name in (gained if names is None else dict.fromkeys(names)) if name in gained]
    topics = {name: _widened(topic, added) for name, topic in view.topics.items()}
    partitions = {key: replace(part, topic=topics[key[0]]) for key, part in view.partitions.items()}
    return replace(view, topics=topics, partitions=partitions)


def _has(topic: TopicState, names: Sequence[str]) -> bool:
    return set(names) <= set(known_columns(topic.schema).names)


def _widened(topic: TopicState, columns: Iterable[tuple[str, str, bool]]) -> TopicState:
    if topic.schema is None:
        return topic
    own = {name for name, _, _ in topic.schema}
    return replace(topic, schema=(*topic.schema, *(column for column in columns if column[0] not in own)))
