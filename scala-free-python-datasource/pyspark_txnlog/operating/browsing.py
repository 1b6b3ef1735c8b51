"""Looking at a store from a driver: the history of its entries, and views of its topics and system tables for SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark_txnlog.connecting.sessions import check_session
from pyspark_txnlog.connecting.storehandles import open_store
from pyspark_txnlog.options.bounds import AS_OF_OPTIONS
from pyspark_txnlog.options.keywords import option_texts
from pyspark_txnlog.options.options import READ
from pyspark_txnlog.options.spark_columns import DELETED, quoted
from pyspark_txnlog.reading.system_tables import TableOptions
from sparktxn import ConfigurationError
from sparktxn.store import SYSTEM_TABLES
from sparktxn.store.options import arguments, metadata_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparktxn import Store, TopicState

_PLACES: Final = ("_partition", "_offset", "_timestamp")


def history(spark: SparkSession, uri: str, *, limit: int | None = None, **options: Any) -> DataFrame:
    """Return what each entry of the log did, newest first: the system table ``entries``.

    Args:
        spark: the session.
        uri: the store.
        limit: at most so many entries, the newest; None means all that the log has kept.
        options: more options of the read, such as ``storage.*``, ``asOfTimestamp`` or ``startingEntry``.

    Raises:
        TypeError: `spark` is not a session, `uri` is not text, or `limit` is not a whole number.
        ConfigurationError: `limit` is below 1, or UTF-8 cannot hold `uri`.
        PySparkException: there is no store, or an option is wrong.
    """
    check_session(spark)
    limit = arguments.integer_or_none("limit", limit, 1)
    newest = None if limit is None else str(limit)
    given = option_texts(None, options, path=uri, table="entries", limit=newest)
    return spark.read.format("txnlog").options(**given).load().orderBy("entry", ascending=False)


def register_views(
    spark: SparkSession,
    uri: str,
    *,
    prefix: str = "",
    system_prefix: str | None = None,
    topics: Iterable[str] | None = None,
    **options: Any,
) -> list[str]:
    """Make a temporary view of each topic and each system table; return the views' names as SQL takes them.

    All views show the store at one entry, so a query over several of them sees whole transactions. It is the newest
    one, or that of the option ``asOfEntry``, ``asOfTimestamp`` or ``asOfTransaction``. For later records and topics,
    call this again: views of the same names are replaced. That of a topic with declared columns has ``_partition``,
    ``_offset`` and ``_timestamp`` after these, unless the option ``columns`` says which columns views have.

    Args:
        spark: the session.
        uri: the store.
        prefix: what the names begin with; the rest is the name of the topic or system table.
        system_prefix: what the names of system tables begin with; None means `prefix`.
        topics: the topics to register; None means all but the internal ones.
        options: more options of the reads, such as ``storage.*`` or ``includeHeaders``.

    Raises:
        TypeError: `spark` is not a session, or another argument has a wrong type.
        ConfigurationError: two views would have one name to Spark, which ignores case. Nothing is registered.
        PySparkException: there is no such store or topic, or an option is wrong.
    """
    check_session(spark)
    prefix = arguments.text("prefix", prefix)
    system_prefix = prefix if system_prefix is None else arguments.text("system_prefix", system_prefix)
    texts = option_texts(None, options, path=uri)
    settings = {name.lower(): value for name, value in texts.items() if _is_setting(name)}
    store = open_store(uri, settings)
    names = [topic.name for topic in store.topics()] if topics is None else arguments.identifiers("topics", topics)
    of_rows = {name: value for name, value in texts.items() if name.lower() not in AS_OF_OPTIONS}
    at = _entry_of(store, uri, texts)
    known = store.view(None, entry=at).topics
    what = [(f"{prefix}{topic}", {**_with_places(known.get(topic), of_rows), "topic": topic}) for topic in names]
    what += [(f"{system_prefix}{table}", {"path": uri, **settings, "table": table}) for table in SYSTEM_TABLES]
    _check_names([name for name, _ in what])
    frames = {
        quoted(name): spark.read.format("txnlog").options(**given).option("asOfEntry", str(at)).load()
        for name, given in what
    }
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return list(frames)


def _with_places(topic: TopicState | None, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options by which a read of a topic with declared columns has the places of its records, too."""
    given = {name.lower(): value for name, value in options.items()}
    if topic is None or topic.schema is None or "columns" in given:
        return options
    # A view has the latest rows of a topic with a key, none of which is a delete.
    names = [name for name, _, _ in topic.schema if name != DELETED or given.get("rows", "").strip().lower() == "all"]
    if any("," in name or name != name.strip() for name in names):
        return options  # the option cannot name them
    has_metadata = given.get("includetxnmetadata", "").strip().lower() == "true"
    more = metadata_names(topic.schema) if has_metadata else ()
    return {**options, "columns": ",".join([*names, *_PLACES, *more])}


def _entry_of(store: Store, uri: str, options: Mapping[str, str]) -> int:
    """Return the entry that `options` name, or the newest one."""
    given = {name: value for name, value in options.items() if name.lower() in AS_OF_OPTIONS}
    point = TableOptions.parse({"path": uri, "table": "entries", **given}, READ).as_of.resolved(store)
    return store.view([], entry=point.entry, timestamp_ms=point.timestamp_ms).entry


def _is_setting(name: str) -> bool:
    return name.lower().startswith(("storage.", "store.", "checkpoint.", "clock."))


def _check_names(views: list[str]) -> None:
    taken: dict[str, str] = {}
    for name in views:
        other = taken.setdefault(name.lower(), name)
        if other is not name:
            raise ConfigurationError(
                f"two views would be called {name!r} and {other!r}, which are one name to Spark: give another "
                "system_prefix, or the topics to register"
            )
