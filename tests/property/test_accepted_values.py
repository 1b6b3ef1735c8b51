"""What is accepted can be read: commands by the decoder, and what the state makes of them by checkpoints and readers.

Lists of commands are made of sensible ones with a hostile value here and there, for every command and every member of
it. They are found by introspection: a new command or member is tried as soon as it exists.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from sparktxn._engine.format.checkpoint import PartRef, decode_part, digest, encode_part, part_of
from sparktxn._engine.format.commands import (
    AlterTopic,
    Append,
    Appends,
    Command,
    CreateTopic,
    DeleteGroup,
    ExpireMember,
    JoinGroup,
    LeaveGroup,
    OffsetToCommit,
    PrepareHalf,
    ReleasePartitions,
    RequireFeatures,
    Rewrite,
    UpdateMember,
)
from sparktxn._engine.format.entry import FORMAT_VERSION, LogEntry, decode_entry, encode_entry
from sparktxn._engine.format.manifest import decode_manifest, encode_manifest
from sparktxn._engine.format.names import entry, sealed_folder, segment_file
from sparktxn._engine.format.schema import stored_schema
from sparktxn._engine.format.snapshot import decode_snapshot, encode_snapshot, snapshot_entry
from sparktxn._engine.format.txnindex import decode_transaction_index, encode_transaction_index
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.machine import apply_list
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.config.topic import topic_setting
from sparktxn._foundation.values.structs import (
    HalfSegment,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    ProducerState,
    StateRecord,
    TableToPublish,
    TopicState,
)
from sparktxn.errors import DamagedObject, ErrorCode
from tests.purelog import PureLog
from tests.seeds import examples

MEMBERSHIP = (JoinGroup, UpdateMember, ReleasePartitions, LeaveGroup, ExpireMember)
COMMANDS = [command for command in Command.__args__ if command is not Appends]
EDGES = (0, 1, 2, 5, 7, 999, 32_766, 32_767, 32_768, 2**28, 2**28 + 1, 2**31 - 1, 2**31, 2**62, 2**63 - 1)
INTEGERS = st.sampled_from(sorted({sign * edge for edge in EDGES for sign in (1, -1)} | {-(2**63)}))
TEXTS = st.sampled_from(
    [
        *("", " ", "x", "ID", "id", "_offset", "_x", "Kafka_Partition", "é\u0000", "x" * 250, "__consumer_offsets"),
        *("no such type", "int64", "list<int64>", "struct<>", "list<", "decimal128(99, 1)", "LogAppendTime", "now"),
        *("../x", "a.b", "a_b", "typed", "plain", "message.timestamp.type", "segment.format", "00000000", "89ABCDEF"),
        *(segment_file(0, "a" * 20, "arrow"), segment_file(10**19, "a" * 20, "parquet"), "half_messages"),
    ]
)


def strategy_of(type_: inspect.Type) -> st.SearchStrategy[Any]:
    """Values that the decoder takes for a member, and hostile ones."""
    match type_:
        case inspect.Metadata():
            return strategy_of(type_.type)
        case inspect.IntType():
            return INTEGERS
        case inspect.StrType():
            return TEXTS
        case inspect.BoolType():
            return st.booleans()
        case inspect.BytesType():
            return st.sampled_from([b"", b"x"])
        case inspect.NoneType():
            return st.none()
        case inspect.UnionType():
            return st.one_of([strategy_of(one) for one in type_.types])
        case inspect.DictType():
            return st.dictionaries(strategy_of(type_.key_type), strategy_of(type_.value_type), max_size=2)
        case inspect.VarTupleType():
            return st.lists(strategy_of(type_.item_type), max_size=3).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(strategy_of, type_.item_types))
        case inspect.StructType():
            return st.builds(type_.cls, **{field.name: strategy_of(field.type) for field in type_.fields})
    raise AssertionError(f"no values for {type_}")


COLUMNS = st.lists(
    st.tuples(st.one_of(st.just("other"), TEXTS), st.one_of(st.just("int64"), TEXTS), st.booleans()),
    min_size=1,
    max_size=2,
).map(tuple)
NAMED_SETTINGS = st.dictionaries(st.sampled_from(["message.timestamp.type", "segment.format"]), TEXTS, min_size=1)
HOSTILE = {
    "new_columns": COLUMNS,
    "schema": st.one_of(st.just(()), COLUMNS),
    "settings": NAMED_SETTINGS,
}

SENSIBLE: dict[str, Any] = {
    # A new one each time.
    "request_id": "",
    "intent_id": "",
    "segment": "",
    "name": "typed",
    "topic_id": 1,
    "partition": 0,
    "partition_count": 3,
    "settings": {},
    "schema": None,
    "new_columns": (),
    "transactional_id": "job",
    "producer_id": 0,
    "producer_epoch": 0,
    "transaction": 1,
    "timeout_ms": 60_000,
    "keep_prepared": False,
    "fence_reason": "",
    "partitions": ((1, 0), (2, 0)),
    "group_id": "g",
    "record_count": 2,
    "size_bytes": 100,
    "checksum": "00000000",
    "base_sequence": 0,
    "timestamp_min_ms": 1,
    "timestamp_max_ms": 2,
    "offsets": (OffsetToCommit(1, 0, 1), OffsetToCommit(2, 0, 0, "metadata")),
    "generation_id": -1,
    "member_id": "",
    "instance_id": "",
    "member_epoch": 1,
    "changed_entry": 1,
    "log_end_offset": 2,
    "topics": ("typed",),
    "session_timeout_ms": 1_000,
    "rebalance_timeout_ms": 1_000,
    "assignors": ("uniform",),
    "classic": False,
    "client_id": "client",
    "host": "host",
    "keeps_place": False,
    "last_entry": 4,
    "after_ms": 1_000,
    "committed": True,
    "timed_out_after_ms": 0,
    "writer_id": "query",
    "run_id": "run",
    "batch_id": 1,
    "fingerprint": "2 rows",
    "before_offset": 1,
    "pending": (),
    "producers": ((0, 0, 1, -1),),
    "horizon": 1,
    "segment_floor": 0,
    "reader_features": (),
    "writer_features": ("groups",),
    "base_entry": 1,
    "base_offset": 0,
    "end_offset": 2,
    "entry": 1,
    "planned_entry": 1,
    "tables": (TableToPublish("plain", 1, 0, "file:///store/topics/plain-1", 0, 0, (0,)),),
    "run": ManifestRef(sealed_folder(0, 1, "a" * 20), 0, 2, 1, 0, 1, 1, 1, 2, 100, "00000000"),
    "command_count": 0,
    "refused_code": 0,
    "reason": "",
    "transaction_id": "half",
    "segments": (HalfSegment("plain", 1, 0, segment_file(0, "a" * 20, "arrow"), 2, 100, "00000000", 1, 2),),
    "immunity_ms": 6_000,
    "wait_ms": 30_000,
    "checks": 0,
    "checker": "checker",
    "by_check": False,
}


def members_of(kind: Any) -> tuple[inspect.Field, ...]:
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    return struct.fields


def sensible(field: inspect.Field) -> Any:
    """A value of a member that the decoder takes; a member without a default must have one in `SENSIBLE`."""
    if field.name in SENSIBLE:
        return SENSIBLE[field.name]
    assert not field.required, f"say in SENSIBLE what a sensible value of {field.name!r} is"
    return field.default_factory() if callable(field.default_factory) else field.default


@st.composite
def commands_(draw: st.DrawFn, kinds: list[Any], hostile_min: int = 0, hostile_max: int = 2) -> Any:
    """A command of one of the kinds, whose members are sensible ones, but `hostile_min` to `hostile_max` of them."""
    kind = draw(st.sampled_from(kinds))
    fields = {field.name: field for field in members_of(kind)}
    hostile = draw(st.lists(st.sampled_from(sorted(fields)), min_size=hostile_min, max_size=hostile_max))
    unique = str(draw(st.integers(0, 10**9)))
    values = {}
    for field in fields.values():
        value: Any = sensible(field)
        name, type_ = field.name, field.type
        if name in ("request_id", "intent_id"):
            value = unique
        elif name == "segment":
            value = segment_file(0, unique.zfill(20), "arrow")
        elif name == "name" and kind is CreateTopic:
            value = f"new-{unique}"
        elif name == "topic_id" and "name" in fields:
            value = 2
        elif kind in MEMBERSHIP and name == "member_id":
            value = "m"
        elif kind is ExpireMember and name == "reason":
            value = "session"
        elif kind is Rewrite and name == "segments":
            value = (segment_file(0, unique.zfill(20), "parquet"),)
        elif kind is DeleteGroup and name == "offsets":
            value = ((1, 0, 3),)
        elif kind is Append and name == "transaction":
            value = draw(st.sampled_from((-1, 1)))
        if name in hostile:
            value = draw(HOSTILE[name] if name in HOSTILE else strategy_of(type_))
        values[name] = value
    return kind(**values)


def is_run(run: ManifestRef) -> bool:
    """True for a run whose members have the values that they may have."""
    try:
        return bool(msgspec.convert(msgspec.to_builtins(run), ManifestRef) == run)
    except msgspec.ValidationError:
        return False


def a_log() -> PureLog:
    """Topics `plain` (Kafka's record) and `typed`, and a transactional id that has producer id 0."""
    log = PureLog()
    log.create_topic("plain")
    log.submit(AlterTopic("table", "plain", 1, {"table.formats": "delta"}), RequireFeatures(("tables",)))
    log.submit(CreateTopic("typed", "typed", 2, {}, (("id", "int64", False), ("name", "string", True))))
    log.initialise("job")
    log.submit(log.initialise(None).append((1, 0), 0, 2))
    log.submit(PrepareHalf("g", "half", SENSIBLE["segments"], 6_000))
    return log


def read_everything(log: PureLog) -> None:
    """Fails if a record cannot be put into a checkpoint and read back, or what it says not be used."""
    parts: dict[str, list[StateRecord]] = {}
    for key, record in log.records.items():
        parts.setdefault(part_of(key), []).append(record)
    for part, records in parts.items():
        data = encode_part(records)
        assert sorted(decode_part(data, part, PartRef(part, len(data), digest(data))), key=lambda r: r.key) == sorted(
            records, key=lambda r: r.key
        )
    for record in log.records.values():
        if isinstance(record, TopicState):
            stored_schema(record.schema)
            names = [name.lower() for name, _, _ in record.schema or [("value", "binary", True)]]
            assert len(names) == len(set(names)) > 0, names
            assert not any(name.startswith("_") or name == "kafka_partition" for name in names), names
            topic_setting(record.settings, "message.timestamp.type")
            topic_setting(record.settings, "segment.format")
        elif isinstance(record, ProducerState):
            encoded = encode_snapshot([snapshot_entry(record)])
            assert decode_snapshot(encoded, "s")
        elif isinstance(record, PartitionSegments):
            if record.segments:
                assert decode_manifest(encode_manifest(record.segments), "m") == record.segments
            if record.aborted:
                assert decode_transaction_index(encode_transaction_index(record.aborted), "i") == record.aborted
        elif isinstance(record, PartitionState):
            assert record.log_start_offset <= last_stable_offset(record) <= record.log_end_offset


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
@settings(max_examples=5)
@given(data=st.data())
def test_a_command_of_sensible_values_can_be_decoded(kind: Any, data: st.DataObject) -> None:
    """Or else the tests below would try hardly any."""
    command = data.draw(commands_([kind], hostile_max=0))
    body = LogEntry(format=FORMAT_VERSION, entry=1, token="t", previous="0" * 8, timestamp_ms=1, commands=(command,))
    assert decode_entry(encode_entry(body)[0], entry(1), 1).commands == (command,)


@settings(max_examples=examples(40, 400), suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(commands_(COMMANDS), min_size=1, max_size=2), min_size=1, max_size=12))
def test_what_the_state_accepts_can_be_checkpointed_and_read(lists: list[list[Any]]) -> None:
    apply_and_read(lists)


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(10, 250), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_the_state_accepts_of_each_command_can_be_read(kind: Any, data: st.DataObject) -> None:
    apply_and_read([[data.draw(commands_([kind], hostile_min=1))], [data.draw(commands_([kind, Append]))]])


def apply_and_read(lists: list[list[Any]]) -> None:
    log = a_log()
    for list_ in lists:
        number = log.entry + 1
        body = LogEntry(
            format=FORMAT_VERSION, entry=number, token="t", previous="0" * 8, timestamp_ms=1, commands=tuple(list_)
        )
        try:
            decode_entry(encode_entry(body)[0], entry(number), number)
        except Exception:  # the committer refuses such a list before it is queued
            assume(False)
        context = Context(number, log.timestamp_ms)
        applied = apply_list(Delta(log.records.get), list_, context)
        if isinstance(applied, Refusal):
            assert ErrorCode(applied.code) > 0
            assert applied.reason
            continue
        log.submit(*list_)
    read_everything(log)


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(10, 100), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_encode_accepts_decode_accepts(kind: Any, data: st.DataObject) -> None:
    """Text with halves of surrogate pairs, and integers beyond 64 bits, are refused by the encoder or both ways."""
    fields = {field.name: strategy_of(field.type) for field in members_of(kind)}
    command = kind(**{name: data.draw(strategy) for name, strategy in fields.items()})
    body = LogEntry(format=FORMAT_VERSION, entry=1, token="t", previous="0" * 8, timestamp_ms=1, commands=(command,))
    try:
        encoded = encode_entry(body)[0]
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return
    if kind.__name__ == "RequireFeatures" and command.reader_features:
        return
    if kind is Rewrite and not is_run(command.run):
        # Its run is a value that the state keeps as it is: a list with another one is refused before it is queued.
        with pytest.raises(DamagedObject):
            decode_entry(encoded, entry(1), 1)
        return
    assert decode_entry(encoded, entry(1), 1).commands == (command,)
