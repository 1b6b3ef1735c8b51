"""The options of the source: one table, parsed once on the driver into frozen values.

Spark hands options over in lower case, and all of them to every use of the source. Messages show the spelling of the
table, and unknown names as they were given. `docs` prints the table as it is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec import Struct

from pyspark_txnlog.options.bounds import AsOf, Bound, TriggerLimits, as_of_options, bound_of, named_partitions
from pyspark_txnlog.options.catalog import (
    is_create_table,
    kept_options,
    options_in,
    rows_are_of_a_table,
    without_table_properties,
)
from pyspark_txnlog.options.filters import parse_filters
from pyspark_txnlog.options.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    parse_json,
    parse_offsets,
    parse_timestamps,
    topic_named,
)
from pyspark_txnlog.options.sparkevents import log_event, warn_without_effect
from sparktxn import ConfigurationError
from sparktxn.errors import did_you_mean, nearest_name
from sparktxn.store import PARTITION_COUNT_MAX
from sparktxn.store.options import (
    BYTES,
    MILLISECONDS,
    TimeAgo,
    arguments,
    boolean,
    choice,
    integer,
    is_relative,
    parse_time,
    parse_time_ago,
    refusal,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_txnlog.options.offsets import Offsets
    from sparktxn import ReadView
    from sparktxn.store.options import Condition
    from sparktxn.store.reading import Order, Rows


# Options ``kafka.*``: settings of Kafka's clients, which a program brings along from ``format("kafka")``.
#
# Those with a meaning here are mapped to an option. What Spark's Kafka connector refuses is refused with its advice.
# Everything else, mostly about a network of brokers and its security, changes nothing: one warning lists the names.

KAFKA_PREFIX: Final = "kafka."

MAPPED_SETTINGS: Final = {
    "bootstrap.servers": "path",
    "isolation.level": "isolationLevel",
    "transactional.id": "transactionalId",
}
"""Settings of Kafka's clients, with the option that has the same meaning."""

REFUSED_READING: Final = {
    "auto.offset.reset": "set the source option 'startingOffsets' to 'earliest' or 'latest' instead. It says where a "
    "new query starts; a restarted one continues where it stopped",
    "key.deserializer": "keys are byte arrays; use DataFrame operations to deserialize them",
    "value.deserializer": "values are byte arrays; use DataFrame operations to deserialize them",
    "enable.auto.commit": "the offsets of a query are in its checkpoint",
    "interceptor.classes": "use DataFrame operations to change what is read",
}
"""What a read refuses, as Spark's Kafka source does, with the advice."""

REFUSED_WRITING: Final = {
    "key.serializer": "keys are strings or byte arrays; use DataFrame operations to serialize them",
    "value.serializer": "values are strings or byte arrays; use DataFrame operations to serialize them",
}
"""What a write refuses, as Spark's Kafka sink does, with the advice."""

_MISSPELT_CUTOFF: Final = 0.8
"""How alike two names are where one is taken for the other misspelt; plug-ins of Kafka's clients have names, too."""

_FAMILIES: Final = ("sasl.", "ssl.", "security.", "metric.", "metrics.")

_CLIENT_SETTINGS: Final = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset batch.size
    bootstrap.controllers buffer.memory check.crcs client.dns.lookup client.id client.rack compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms default.api.timeout.ms
    delivery.timeout.ms enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms interceptor.classes internal.leave.group.on.close key.deserializer key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy partition.assignment.strategy partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes session.timeout.ms share.acknowledgement.mode socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.timeout.ms transaction.two.phase.commit.enable value.deserializer
    value.serializer
"""

_KNOWN: Final = frozenset(_CLIENT_SETTINGS.split())

_warned: set[tuple[str, ...]] = set()


def check_setting(setting: str, use: str, *, writing: bool) -> None:
    """Raise unless a setting, without ``kafka.``, that is mapped to no option may be ignored.

    Raises:
        ConfigurationError: Spark's Kafka connector refuses it too, or it looks like another setting misspelt.
    """
    known = setting.lower()
    refused = REFUSED_WRITING if writing else REFUSED_READING
    if known in refused:
        raise ConfigurationError(f"Kafka option {known!r} is not supported: {refused[known]}")
    if known in _KNOWN or known in MAPPED_SETTINGS or known.startswith(_FAMILIES):
        return
    nearest = difflib.get_close_matches(known, sorted((*_KNOWN, *MAPPED_SETTINGS)), n=1, cutoff=_MISSPELT_CUTOFF)
    if nearest:
        name, meant = KAFKA_PREFIX + setting, KAFKA_PREFIX + nearest[0]
        raise ConfigurationError(f"unknown option {name!r} for {use} of txnlog; did you mean {meant!r}?")


def warn_ignored(names: Collection[str], use: str) -> None:
    """Log one warning with the options that change nothing: a process logs the same names once. Shows no values."""
    key = (use, *sorted(names))
    if names and key not in _warned:
        _warned.add(key)
        log_event("spark_options_ignored", use=use, options=", ".join(key[1:]))


# How the text of an option of Spark becomes a value, where settings have no such kind.


def parse_text(named: str, value: str) -> str:
    """Return the text without spaces around it; it is not empty."""
    if not value.strip():
        raise refusal(named, value, "text")
    return value.strip()


def parse_identifier(named: str, value: str) -> str:
    """Return a name as Kafka's protocol and the log take it."""
    return arguments.identifier(named, parse_text(named, value))


def parse_names(named: str, value: str) -> tuple[str, ...]:
    """Return the names of a list; none is empty or there twice."""
    names = tuple(part.strip() for part in value.split(","))
    if not all(names):
        raise refusal(named, value, "names separated by commas, none of them empty")
    if len(set(names)) < len(names):
        raise refusal(named, value, "each name once")
    return names


def parse_topics(named: str, value: str) -> tuple[str, ...]:
    """Return the names of a list as Kafka's source takes them: empty ones do not count, and each counts once."""
    topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not topics:
        raise refusal(named, value, "names of topics separated by commas")
    return topics


def parse_assignment(named: str, value: str) -> dict[str, tuple[int, ...]]:
    """Return the partitions of each topic, in order and each once."""
    expected = 'JSON such as {"flights":[0,1]}'
    parsed = parse_json(named, value, f"expected {expected}")
    if not isinstance(parsed, dict) or not parsed:
        raise refusal(named, value, expected)
    for topic, partitions in parsed.items():
        topic_named(named, topic)
        whole = isinstance(partitions, list) and all(
            type(number) is int and 0 <= number <= arguments.INT32_MAX for number in partitions
        )
        if not whole or not partitions:
            raise ConfigurationError(
                f"{named} has {arguments.shown(partitions)} for topic {topic!r}: expected a list of "
                f"partition numbers, as in {expected}"
            )
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}


def parse_start(named: str, value: str) -> Offsets | TimeAgo:
    """Return where a read starts: offsets, a time before now, or the offsets of a group."""
    if is_relative(value):
        return parse_time_ago(named, value)
    if value.strip().lower() == COMMITTED:
        return COMMITTED
    return parse_offsets(named, value, or_committed=True)


def parse_pattern(named: str, value: str) -> str:
    """Return a regular expression that can be compiled."""
    try:
        re.compile(parse_text(named, value))
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(
            f"{named} is {arguments.shown(value)}: expected a regular expression as Python has them ({error})"
        ) from None
    return value.strip()


# Reads of what some entries of the log have committed: changes between two entries.

_ENDS: Final = (
    ("startingEntry", ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")),
    ("endingEntry", ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")),
)


class EntryRange(Struct, frozen=True, kw_only=True):
    """The entries whose transactions are read, both included; None means from the first, or to the view's entry."""

    first: int | None
    last: int | None

    @property
    def after(self) -> int:
        """The entry before the first."""
        return 0 if self.first is None else self.first - 1

    def check_first(self, view: ReadView) -> None:
        """Raise unless the log at `view` has the first entry, or ends right before it.

        A job that goes on where its last run ended may find nothing new: that is not an error.

        Raises:
            ConfigurationError: `startingEntry` is after the entry that follows the view's.
        """
        if self.after > view.entry:
            raise ConfigurationError(
                f"option 'startingEntry' is {self.first}: expected at most {view.entry + 1}, the next one of the log"
            )

    def last_in(self, view: ReadView) -> int:
        """Return the last entry of a read of `view`.

        Raises:
            ConfigurationError: `endingEntry` is after the view's entry, or `startingEntry` is after the next one.
        """
        self.check_first(view)
        if self.last is not None and self.last > view.entry:
            raise ConfigurationError(
                f"option 'endingEntry' is {self.last}: the read ends at entry {view.entry} of the log at most"
            )
        return view.entry if self.last is None else self.last


def entry_range(values: Mapping[str, Any]) -> EntryRange:
    """Return the entries that the parsed options `values` name.

    Raises:
        ConfigurationError: the first is after the last, or an offset or a time is given for the same end.
    """
    for name, others in _ENDS:
        for other in others:
            # A batch ends at the latest offsets by default.
            if name in values and values.get(other, "latest") != "latest":
                raise ConfigurationError(f"options {name!r} and {other!r} exclude each other: give one")
    first, last = values.get("startingEntry"), values.get("endingEntry")
    if first is not None and last is not None and first > last:
        raise ConfigurationError(f"option 'startingEntry' is {first}, after 'endingEntry', which is {last}")
    return EntryRange(first=first, last=last)


READ: Final = "read"
READ_STREAM: Final = "readStream"
WRITE: Final = "write"
WRITE_STREAM: Final = "writeStream"
SCHEMA: Final = "read or readStream"
"""While Spark asks for the schema it does not yet say which of the two it will do."""

_READS: Final = frozenset({READ, READ_STREAM})
_WRITES: Final = frozenset({WRITE, WRITE_STREAM})
_ALL: Final = _READS | _WRITES
_BATCH: Final = frozenset({READ})
_STREAM: Final = frozenset({READ_STREAM})
_STREAM_WRITES: Final = frozenset({WRITE_STREAM})

_STORE_PREFIXES: Final = ("storage.", "store.", "checkpoint.", "clock.")
_CLIENT_PREFIXES: Final = ("txnlog.", KAFKA_PREFIX)
_SPARK_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark reads itself and hands over all the same."""

_ALIASES: Final = {"rowspertask": "maxrecordsperpartition"}


class Option(NamedTuple):
    """One option: its name, the uses that know it, its default as text, how it is parsed, and what it means.

    `ignored` are uses that check it and then warn that it has no effect.
    """

    name: str
    uses: frozenset[str]
    default: str | None
    parse: Callable[[str, str], Any]
    meaning: str
    ignored: frozenset[str] = frozenset()

    def parsed(self, text: str) -> Any:
        """Return the value that `text` is.

        Raises:
            ConfigurationError: it is not what the option takes.
        """
        return self.parse(f"option {self.name!r}", text)


OPTIONS: Final[tuple[Option, ...]] = (
    Option("path", _ALL, None, parse_text, "The store's URI or folder; `load(path)` and `save(path)` set it. Required."),
    Option("subscribe", _READS, None, parse_topics, "Topics to read, separated by commas; all of their partitions. __transaction_state and __consumer_offsets give the log's history."),
    Option("subscribePattern", _READS, None, parse_pattern, "A regular expression of Python's that whole names of topics match, also of topics that are created later; no internal ones. Instead of `subscribe`."),
    Option("assign", _READS, None, parse_assignment, 'Partitions to read, as {"flights":[0,1]}. Instead of `subscribe`.'),
    Option("topic", _ALL, None, parse_identifier, "The topic to write, whatever the column `topic` says; for reads the same as `subscribe` of one."),
    Option("startingTimestamp", _READS, None, parse_time, "Where to start in every partition: the first record at or after this time: milliseconds since 1970, a time with its zone, or `-10 minutes`. Comes before the two options that follow."),
    Option("startingOffsetsByTimestamp", _READS, None, parse_timestamps, 'The same for each partition: {"flights":{"0":1700000000000,"1":1700000000000}} names all that are read. Comes before `startingOffsets`.'),
    Option("startingOffsets", _READS, None, parse_start, 'Where to start: earliest (a batch\'s default), latest (a new stream\'s default), `-10 minutes`, or committed: the offsets of the group `kafka.group.id`. Or {"flights":{"0":23,"1":-2}} for all partitions that are read; -2 is earliest, -1 latest.'),
    Option("startingOffsetsByTimestampStrategy", _READS, "error", choice("error", "latest"), "What a start by timestamp does where no record is at or after it: fail, or start with the next record. A relative time starts with the next record."),
    Option("endingTimestamp", _BATCH, None, parse_time, "Where a batch ends (exclusive): the first record at or after this time; the end where there is none. Comes before the two options that follow."),
    Option("endingOffsetsByTimestamp", _BATCH, None, parse_timestamps, "The same for each partition; it names all that are read. Comes before `endingOffsets`."),
    Option("endingOffsets", _BATCH, "latest", parse_offsets, 'Where a batch ends (exclusive): latest or {"flights":{"0":50,"1":-1}}, which names all partitions that are read.'),
    Option("maxOffsetsPerTrigger", _STREAM, None, integer(1, arguments.INT64_MAX), "About how many records a micro-batch takes (of an internal topic: log entries). In commit order it takes whole transactions, at least one.", _BATCH),
    Option("minOffsetsPerTrigger", _STREAM, None, integer(1, arguments.INT64_MAX), "A micro-batch waits until so many offsets can be read, for `maxTriggerDelay` at most. AvailableNow and once do not wait.", _BATCH),
    Option("maxTriggerDelay", _STREAM, "15m", integer(0, arguments.INT64_MAX, MILLISECONDS), "How long `minOffsetsPerTrigger` may hold back a micro-batch. As in Spark, a number without a unit is milliseconds.", _BATCH),
    Option("maxBytesPerTrigger", _STREAM, None, integer(1, arguments.INT64_MAX, BYTES), "About how many bytes of stored segments, which internal topics have not, a micro-batch takes. In commit order it takes whole transactions, at least one.", _BATCH),
    Option("minPartitions", _READS, None, integer(1, arguments.INT64_MAX), "At least about so many tasks: partitions with many records are split, and 1 splits none. Default: one for each core of the driver, or of the session if `register()` has noted them, with 50,000 records or more each."),
    Option("maxRecordsPerPartition", _READS, None, integer(1, arguments.INT64_MAX), "At most about so many records per task (of an internal topic: log entries); segments are not split. Also called `rowsPerTask`."),
    Option("isolationLevel", _READS, "read_committed", choice("read_committed", "read_uncommitted"), "read_committed returns records of committed transactions only (Kafka's default is read_uncommitted)."),
    Option("order", _READS, None, choice("commit", "offset"), "commit reads transactions whole, in the order in which they were committed, and no open one holds a read back. It is the default of read_committed. offset reads each partition up to its last stable offset, as Kafka does: micro-batches may split transactions."),
    Option("rows", _READS, None, choice("latest", "all"), "Of topics with a key: latest, a batch's default, reads [the newest row of each key](tables-that-change.md#reading-with-spark) without deletes. all reads every upsert and delete, with the column `_deleted`; a stream has to ask for it."),
    Option("columns", _READS, None, parse_names, "Columns to read, in this order; others are neither fetched nor decoded."),
    Option("filters", _BATCH, None, parse_filters, 'Conditions that all rows meet, as SQL has them or as [["key","=","DE"],["amount",">=",10]], see [the operators](spark.md#conditions-that-skip-segments). Segments without such a row are not decoded.'),
    Option("includeHeaders", _ALL, "false", boolean, "Whether rows that are read have the column `headers`. Rows that are written have their headers with them in any case."),
    Option("includeTxnMetadata", _READS, "false", boolean, "Whether rows have the columns `producer_id`, `producer_epoch`, `transactional_id` and `entry`, the log entry that committed them. Of a typed topic they begin with `_`."),
    Option("onNewColumns", _STREAM, None, choice("fail", "skip"), "What a stream does before a micro-batch with values in a column that it lacks: [fail](schema-evolution.md#streams-of-spark), or skip the column and log it. Default: skip if `columns` or a schema of your own names the columns, else fail.", _BATCH),
    Option("failOnDataLoss", _READS, "true", boolean, "Whether a stream fails when records that it has not read were removed; otherwise it says so and goes on."),
    Option("groupIdPrefix", _READS, None, parse_identifier, "Only checked: a query needs no consumer group, its offsets are in its checkpoint."),
    Option("kafka.group.id", _READS, None, parse_identifier, "The consumer group of `startingOffsets` as committed, and of `commitOffsetsOnCheckpoint`. Without effect otherwise: a query keeps its offsets in its checkpoint."),
    Option("autoOffsetReset", _READS, "earliest", choice("earliest", "latest", "none"), "With `startingOffsets` as committed: where a partition starts for which the group has committed nothing. none is an error, as Kafka's auto.offset.reset."),
    Option("commitOffsetsOnCheckpoint", _STREAM, "false", boolean, "Whether the offsets of `kafka.group.id` are committed after each micro-batch: for ordinary tools, at least once, and late by one micro-batch. A txnlog sink's `commitGroup` is exact.", _BATCH),
    Option("commitGroup", _STREAM_WRITES, None, parse_identifier, "The consumer group whose offsets each micro-batch commits in its transaction, for the sources that read the sink's store. Needs `checkpointLocation` as an option of the sink."),
    Option("fetchOffset.numRetries", _READS, "3", integer(0, arguments.INT64_MAX), "Only checked: `store.request.timeout.ms` says how long a request is tried."),
    Option("fetchOffset.retryIntervalMs", _READS, "10", integer(0, arguments.INT64_MAX, MILLISECONDS), "Only checked: `store.request.timeout.ms` says how long a request is tried."),
    Option("kafkaConsumer.pollTimeoutMs", _READS, None, integer(0, arguments.INT64_MAX, MILLISECONDS), "Only checked: `store.request.timeout.ms` says how long a request is tried."),
    Option("startingEntry", _READS, None, integer(1, arguments.INT64_MAX), "Read what the log's entries from this one on have committed: changes for a batch, a start for a stream. Needs `order=commit`."),
    Option("endingEntry", _BATCH, None, integer(1, arguments.INT64_MAX), "The last entry of such a batch. It may be older than any view that a vacuum has left; records that were removed are missing."),
    Option("asOfEntry", _BATCH, None, integer(0, arguments.INT64_MAX), "Read the store as it was after this log entry."),
    Option("asOfTimestamp", _BATCH, None, parse_time, "Read the store as it was at this time: milliseconds since 1970, a time with its zone such as `2024-05-01T12:00:00Z`, or `-10 minutes`. Excludes the other two."),
    Option("asOfTransaction", _BATCH, None, parse_text, "Read the store as it was right after this transaction was committed: its name in the system table `entries`, or `queryId:batchId` of a sink."),
    Option("table", _BATCH, None, choice("transactions", "producers", "groups", "entries", "segments"), "Read a system table, with its own columns, instead of topics."),
    Option("limit", _BATCH, None, integer(1, arguments.INT64_MAX), "For `table=entries`: at most so many entries, the newest."),
    Option("transactionalId", _WRITES, None, parse_identifier, "The transactional id of the writes. Default: one per query or txnAppId; other batch writes share one, and do not fence each other."),
    Option("txnAppId", frozenset({WRITE}), None, parse_identifier, "With txnVersion: a write of a version at or below the last committed one does nothing."),
    Option("txnVersion", frozenset({WRITE}), None, integer(0, arguments.INT64_MAX), "A number that grows with every write of txnAppId, such as foreachBatch's batch id."),
    Option("onReplayMismatch", _WRITES, "count", choice("count", "skip", "fail"), "What to do where a micro-batch or txnVersion was committed before with rows that may be others: skip it with a warning, or fail. [count](spark.md#repeated-micro-batches) fails if the number of rows is another one or not known, and skips it otherwise."),
    Option("createTopic", _WRITES, "false", boolean, "Whether a missing topic named by the option `topic` is created, and the store with it."),
    Option("createTopicPartitions", _WRITES, "1", integer(1, PARTITION_COUNT_MAX), "How many partitions `createTopic` makes."),
    Option("mergeSchema", _WRITES, "false", boolean, "Whether the typed topic `topic` gains the columns of the rows that it lacks, as nullable ones at its end. Earlier records have null there."),
    Option("lastBy", _WRITES, None, parse_names, "For topics with a key, and needed by their streams: columns whose greatest values say which row of a key in a batch is the last; undeclared ones are not stored. Or unique, a batch's default: [a key twice](tables-that-change.md#a-key-twice-in-a-batch) is refused."),
    Option("partitionKey", _WRITES, None, parse_identifier, "The column of the typed topic `topic` that chooses the partition, if its setting `partition.key` says none; `createTopic` makes it that setting."),
)  # fmt: skip

_BY_LOWER: Final = {option.name.lower(): option for option in OPTIONS}
_DEFAULTS: Final = {option.name: option.parsed(option.default) for option in OPTIONS if option.default is not None}


def _resolve(name: str) -> str:
    """Return the lower-case option that `name`, lower-case, means."""
    for prefix in _CLIENT_PREFIXES:
        bare = name.removeprefix(prefix)
        if bare != name:
            return MAPPED_SETTINGS.get(bare, bare).lower()
    return _ALIASES.get(name, name)


def _known(given_name: str, use: str) -> Option | None:
    """Return the option that `given_name` means for `use`; None for a setting of Kafka's clients without one.

    Raises:
        ConfigurationError: the option is unknown, belongs to another use, or is one that Kafka's connector
            refuses.
    """
    name = given_name.lower()
    uses = _READS if use == SCHEMA else frozenset({use})
    option = option_named(name)
    if option is not None and (option.uses | option.ignored) & uses:
        return option
    if name.startswith(KAFKA_PREFIX):
        check_setting(given_name[len(KAFKA_PREFIX) :], use, writing=use in _WRITES)
        return None
    if option is None:
        raise _unknown(given_name, use)
    raise ConfigurationError(f"option {option.name!r} belongs to {' and '.join(sorted(option.uses))}, not to {use}")


_INSTEAD: Final = {
    "sequenceBy": "set 'lastBy' to these columns: they say which row of a key is the last of a batch. Across batches the "
    "later commit wins, whatever a row says of its time",
    "uniqueKeys": "set 'lastBy' to 'unique': then a key that a batch has twice is refused",
}
"""What to write instead of options that other systems have."""


def _unknown(name: str, use: str) -> ConfigurationError:
    for meant, instead in _INSTEAD.items() if use in _WRITES else ():
        if name.lower() == meant.lower():
            return ConfigurationError(f"unknown option {meant!r} for {use} of txnlog: {instead}")
    known = [option.name for option in OPTIONS if use == SCHEMA or use in option.uses]
    nearest = nearest_name(_resolve(name.lower()), [option.lower() for option in known])
    for option in known:
        nearest = nearest.replace(f"{option.lower()!r}", f"{option!r}")
    return ConfigurationError(f"unknown option {name!r} for {use} of txnlog{nearest}")


_CREATE_TABLE: Final = "CREATE TABLE t USING txnlog OPTIONS (path '...', topic '...')"
_PATH_MISSING: Final = (
    "option 'path' is missing: load() and save() take the store's URI; option 'kafka.bootstrap.servers' is the same. "
    f"A table of the catalog keeps its options with {_CREATE_TABLE}; toTable() of a stream needs them again"
)
INSERT_ALWAYS: Final = "One form always works: INSERT INTO t WITH (path '...', topic '...') SELECT ..."
"""The advice for writes to tables of the catalog."""

_NO_OPTIONS: Final = (
    "no options were given, not even 'path'. Spark passes none on for CREATE TABLE ... AS SELECT, nor for a table that "
    "was created with columns or by saveAsTable(). Create the table without columns, "
    f"{_CREATE_TABLE}, then INSERT INTO t; or give the options with each read and write"
)
_NO_OPTIONS_TO_WRITE: Final = (
    f"no options were given, not even 'path'. {INSERT_ALWAYS}. Spark passes on none of the table's where the rows have "
    "just its columns, for CREATE TABLE ... AS SELECT, for saveAsTable(), and for a table that was created with "
    f"columns. Create the table without columns, {_CREATE_TABLE}, then INSERT INTO t"
)


class GivenOptions(Struct, frozen=True, kw_only=True):
    """The options that a use of the source was given, with their values parsed: picklable, and parsed once.

    Spark asks for the schema in one process and for the reader in another, so the source takes this along. `values` are
    by the table's names, `store` has the settings of the store's handle, and `ignored` are the names of options that
    change nothing for `use`.
    """

    texts: Mapping[str, str]
    use: str
    values: dict[str, Any]
    store: dict[str, str]
    ignored: tuple[str, ...]
    creates_table: bool

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.texts)})"

    def whole(self) -> dict[str, Any]:
        """Return the values with defaults filled in, after a warning for options that have no effect."""
        if self.use != SCHEMA:
            warn_without_effect({name: self.values[name] for name in self.values if name not in self.ignored}, self.use)
        return {**_DEFAULTS, **self.values}


def parse_given(given: Mapping[str, str] | GivenOptions, use: str) -> GivenOptions:
    """Return the options `given` for `use`: as texts, or as parsed while the use was not known yet.

    Logs one warning with the names of options that change nothing.

    Raises:
        ConfigurationError: an option is unknown, belongs to another use, is given twice or has a wrong value.
    """
    if isinstance(given, GivenOptions):
        if given.use == use:
            return given
        texts, known = given.texts, given.values
    else:
        texts, known = given, {}
    values: dict[str, Any] = {}
    store: dict[str, str] = {}
    without_meaning: list[str] = []
    creates_table = is_create_table(texts)
    for given_name, value in without_table_properties(texts).items():
        name = given_name.lower()
        if name in _SPARK_OWN:
            continue
        if name.startswith(_STORE_PREFIXES):
            # Credentials are among these: an error does not show them.
            store[name] = arguments.text(f"option {name!r}", value, secret=True)
            continue
        if use == SCHEMA and creates_table and option_named(name) is not None:
            # A table keeps the options of its writes too.
            option = option_named(name)
        else:
            option = _known(given_name, use)
        if option is not None and option.name in known:
            values[option.name] = known[option.name]
        elif option is not None:
            parsed = option.parsed(arguments.text(f"option {option.name!r}", value))
            if values.setdefault(option.name, parsed) != parsed:
                raise ConfigurationError(
                    f"option {option.name!r} is given twice, as {values[option.name]!r} and {parsed!r}"
                )
        if option is None or use in option.ignored:
            without_meaning.append(name if option is None else option.name)
    if use != SCHEMA:
        warn_ignored(without_meaning, use)
    if "path" not in values:
        nothing = _NO_OPTIONS_TO_WRITE if use == WRITE else _NO_OPTIONS
        raise ConfigurationError(_PATH_MISSING if texts else nothing)
    return GivenOptions(
        texts=texts, use=use, values=values, store=store, ignored=tuple(without_meaning), creates_table=creates_table
    )


def _shown(options: ReadOptions | WriteOptions) -> str:
    """Return the options as text without the values of the store's settings, some of which are secrets."""
    fields = {name: getattr(options, name) for name in options.__struct_fields__}
    fields["store"] = sorted(options.store)
    return f"{type(options).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


class ReadOptions(Struct, frozen=True, kw_only=True):
    """The parsed options of a read; see OPTIONS for their meaning.

    `topics` are those of `assign` too; with a `pattern` there are none, for the store's topics are matched.
    """

    path: str
    store: dict[str, str]
    use: Literal["read", "readStream", "read or readStream"]
    topics: tuple[str, ...]
    assigned: dict[str, tuple[int, ...]] | None
    pattern: str | None
    starting: Bound
    ending: Bound
    trigger: TriggerLimits
    partitions_min: int | None
    rows_per_task: int | None
    isolation: Literal["read_committed", "read_uncommitted"]
    order: Order
    rows: Rows | None
    columns: tuple[str, ...] | None
    filters: tuple[Condition, ...] = ()
    include_headers: bool
    include_txn_metadata: bool
    fail_on_data_loss: bool
    on_new_columns: Literal["fail", "skip"] | None = None
    entries: EntryRange
    as_of: AsOf
    table_options: dict[str, str] | None
    commit_group: str | None = None
    parallelism: int = 1

    def __repr__(self) -> str:
        return _shown(self)

    @classmethod
    def parse(
        cls,
        given: Mapping[str, str] | GivenOptions,
        use: Literal["read", "readStream", "read or readStream"],
        *,
        parallelism: int = 1,
    ) -> ReadOptions:
        """Return the options of `given` for `use`, in a session that runs at least `parallelism` tasks at a time.

        Raises:
            ConfigurationError: an option is wrong, or two of them contradict each other.
        """
        parsed = parse_given(given, use)
        values = parsed.whole()
        _check_no_table(values)
        topics, assigned = _topics_to_read(values)
        starting = bound_of("starting", values, "latest" if use == READ_STREAM else "earliest")
        ending = bound_of("ending", values, "latest")
        _check_bounds(starting, ending, topics, use)
        entries = entry_range(values)
        as_of = as_of_options(values)
        if use == READ_STREAM and values.get("rows") == "latest":
            raise ConfigurationError("option 'rows' is latest, and a stream reads all rows: expected all")
        return cls(
            path=values["path"],
            store=parsed.store,
            use=use,
            topics=topics,
            assigned=assigned,
            pattern=values.get("subscribePattern"),
            starting=starting,
            ending=ending,
            trigger=_trigger_limits(values),
            partitions_min=values.get("minPartitions"),
            rows_per_task=values.get("maxRecordsPerPartition"),
            isolation=values["isolationLevel"],
            order=_order(values),
            rows=values.get("rows"),
            columns=values.get("columns"),
            filters=values.get("filters", ()),
            include_headers=values["includeHeaders"],
            include_txn_metadata=values["includeTxnMetadata"],
            fail_on_data_loss=values["failOnDataLoss"],
            on_new_columns=values.get("onNewColumns"),
            entries=entries,
            as_of=as_of,
            table_options=kept_options(parsed.texts) if parsed.creates_table else None,
            commit_group=_group_to_commit(values),
            parallelism=parallelism,
        )


class WriteOptions(Struct, frozen=True, kw_only=True):
    """The parsed options of a write; see OPTIONS for their meaning. `checkpoint` is the query's folder, if known.

    With `needs_key` a topic without a key is refused. With `has_outputs` some topics of the write may have a key and
    others none.
    """

    path: str
    store: dict[str, str]
    topic: str | None
    include_headers: bool
    transactional_id: str | None
    application_id: str | None
    application_version: int | None
    on_replay_mismatch: Literal["count", "skip", "fail"]
    create_topic: bool
    create_topic_partitions: int
    commit_group: str | None = None
    checkpoint: str | None = None
    merge_schema: bool
    partition_key: str | None
    use: Literal["write", "writeStream"] = "write"
    last_by: tuple[str, ...] | None = None
    needs_key: bool = False
    has_outputs: bool = False

    def __repr__(self) -> str:
        return _shown(self)

    @classmethod
    def parse(cls, given: Mapping[str, str], use: Literal["write", "writeStream"]) -> WriteOptions:
        """Return the options of `given` for `use`.

        Raises:
            ConfigurationError: an option is wrong, or one of a pair is missing.
        """
        parsed = parse_given(given, use)
        values = parsed.whole()
        if ("txnAppId" in values) != ("txnVersion" in values):
            missing = "txnVersion" if "txnAppId" in values else "txnAppId"
            raise ConfigurationError(f"option {missing!r} is missing: txnAppId and txnVersion go together")
        checkpoint = next((value for name, value in given.items() if name.lower() == "checkpointlocation"), None)
        if "commitGroup" in values and checkpoint is None:
            raise ConfigurationError(
                "option 'commitGroup' needs the option 'checkpointLocation' on the same sink: a sink does not see the "
                "session's spark.sql.streaming.checkpointLocation"
            )
        for name, what in (("createTopic", "create"), ("mergeSchema", "change"), ("partitionKey", "write")):
            if values.get(name) and "topic" not in values:
                raise ConfigurationError(f"option {name!r} needs the option 'topic': it names the topic to {what}")
        return cls(
            path=values["path"],
            store=parsed.store,
            topic=values.get("topic"),
            include_headers=values["includeHeaders"],
            transactional_id=values.get("transactionalId"),
            application_id=values.get("txnAppId"),
            application_version=values.get("txnVersion"),
            on_replay_mismatch=values["onReplayMismatch"],
            create_topic=values["createTopic"],
            create_topic_partitions=values["createTopicPartitions"],
            commit_group=values.get("commitGroup"),
            checkpoint=checkpoint,
            merge_schema=values["mergeSchema"],
            partition_key=values.get("partitionKey"),
            use=use,
            last_by=values.get("lastBy"),
        )


_WHAT_TO_READ: Final = ("subscribe", "subscribePattern", "assign", "topic")


def _check_no_table(values: Mapping[str, Any]) -> None:
    """Refuse what only reads of a system table take; those parse their options themselves."""
    if "table" in values:
        raise ConfigurationError("option 'table' reads a system table: only spark.read.format('txnlog') does that")
    if "limit" in values:
        raise ConfigurationError("option 'limit' needs the option 'table' as 'entries': it limits what that has")


def _topics_to_read(values: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]] | None]:
    named = [name for name in _WHAT_TO_READ if name in values]
    if len(named) != 1:
        found = f"{' and '.join(repr(name) for name in named)} are given" if named else "none is given"
        raise ConfigurationError(
            "exactly one of the options 'subscribe', 'subscribePattern', 'assign' and 'topic' says what to read: "
            f"{found}"
        )
    if named == ["subscribePattern"]:
        return (), None
    if named == ["assign"]:
        return tuple(values["assign"]), values["assign"]
    return values["subscribe"] if named == ["subscribe"] else (values["topic"],), None


def _order(values: Mapping[str, Any]) -> Order:
    """Return the order that the options ask for, or that the others of them need."""
    from sparktxn.store.reading import checked_order  # reads alone have an order

    needs_entries = [repr(name) for name in ("startingEntry", "endingEntry") if name in values]
    uncommitted = values["isolationLevel"] == "read_uncommitted"
    asked = values.get("order", "commit" if needs_entries else None)
    if asked == "commit" and uncommitted:
        needed = " and ".join(needs_entries) or "'order' as 'commit'"
        raise ConfigurationError(
            f"option {needed} does not go with 'isolationLevel' as 'read_uncommitted': only reads in commit order have "
            "one, only reads in offset order the other"
        )
    order = checked_order(asked, values["isolationLevel"])
    if order == "offset" and needs_entries:
        raise ConfigurationError(f"option {' and '.join(needs_entries)} needs 'order' as 'commit': it is 'offset'")
    return order


def _group_to_commit(values: Mapping[str, Any]) -> str | None:
    if not values["commitOffsetsOnCheckpoint"]:
        return None
    if "kafka.group.id" not in values:
        raise ConfigurationError(
            "option 'commitOffsetsOnCheckpoint' is true: expected the option kafka.group.id, which names the group"
        )
    return str(values["kafka.group.id"])


def _trigger_limits(values: Mapping[str, Any]) -> TriggerLimits:
    rows_min, rows_max = values.get("minOffsetsPerTrigger"), values.get("maxOffsetsPerTrigger")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise ConfigurationError(
            f"option 'minOffsetsPerTrigger' is {rows_min}: expected at most 'maxOffsetsPerTrigger', which is {rows_max}"
        )
    return TriggerLimits(
        rows_min=rows_min,
        rows_max=rows_max,
        bytes_max=values.get("maxBytesPerTrigger"),
        delay_ms_max=values["maxTriggerDelay"],
    )


def _check_bounds(starting: Bound, ending: Bound, topics: Collection[str], use: str) -> None:
    """Refuse bounds that the use of the source cannot have, before the store is asked for anything."""
    for bound in (starting, ending):
        for topic in named_partitions(bound) or ():
            if topics and topic not in topics:
                raise ConfigurationError(
                    f"option {bound.name!r} names topic {topic!r}, which is not read{did_you_mean(topic, topics)}"
                )
    if _has_offset(ending, "earliest", EARLIEST):
        raise ConfigurationError("option 'endingOffsets' cannot be earliest (-2): expected latest (-1) or offsets")
    if use == READ and _has_offset(starting, "latest", LATEST):
        raise ConfigurationError("option 'startingOffsets' cannot be latest (-1) for a batch: it would read nothing")


def _has_offset(bound: Bound, word: str, offset: int) -> bool:
    if isinstance(bound.offsets, dict):
        return any(offset in by_partition.values() for by_partition in bound.offsets.values())
    return bound.offsets == word


def option_named(name: str) -> Option | None:
    """Return the option that `name`, lower-case, means; None for a setting of the store, of Kafka's clients, or unknown."""
    return _BY_LOWER.get(name) or _BY_LOWER.get(_resolve(name))


# What a use of a table in Spark's catalog is given: its own options, and those that the table keeps.

_TARGET_UNKNOWN: Final = (
    "the rows are as they were read from a table of format txnlog, and Spark does not say which table they are written "
    f"to. {INSERT_ALWAYS}; in Python it is df.write.format('txnlog') with these options"
)


def options_of_table(given: Mapping[str, str], schema: StructType, use: str) -> dict[str, str]:
    """Return the options of `given` over those that a catalog's table keeps for `use`, a read or a batch write.

    A table keeps what reads and writes of it need, in batches and in streams: each takes what it knows. With a path
    `given` is complete: then `schema` has the options of a table that the rows, or the schema, were taken from.

    Raises:
        ConfigurationError: a write has no path, and the rows' metadata is that of a table that they were read from.
    """
    if any(_is_path(name) for name in given):
        return dict(given)
    if use == WRITE and rows_are_of_a_table(schema):
        raise ConfigurationError(_TARGET_UNKNOWN)
    kept = {name: value for name, value in options_in(schema).items() if _is_taken(name, use)}
    return {**kept, **given}


def _is_path(name: str) -> bool:
    option = option_named(name.lower())
    return option is not None and option.name == "path"


def _is_taken(name: str, use: str) -> bool:
    option = option_named(name)
    return option is None or option.name == "table" or use in option.uses
