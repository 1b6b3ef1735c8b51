"""Options: each wrong one is reported by its name, with what was expected, before the store is touched."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.options.bounds import AsOf
from pyspark_txnlog.options.keywords import option_texts
from pyspark_txnlog.options.options import (
    OPTIONS,
    READ,
    READ_STREAM,
    SCHEMA,
    WRITE,
    WRITE_STREAM,
    ReadOptions,
    WriteOptions,
    parse_given,
)
from sparktxn import ConfigurationError
from sparktxn._foundation.config.values import TimeAgo

READING = {"path": "/s", "subscribe": "a,b"}


@pytest.mark.parametrize(
    ("given", "use", "message"),
    [
        ({"subscribe": "a"}, READ, "option 'path' is missing"),
        ({"path": "/s"}, READ, "exactly one of the options 'subscribe', 'subscribePattern', 'assign' and"),
        ({**READING, "topic": "a"}, READ, "'subscribe' and 'topic' are given"),
        ({**READING, "startingofset": "x"}, READ, "unknown option 'startingofset' .*did you mean 'startingOffsets'"),
        ({**READING, "subscribepattern": "a.*"}, READ, "'subscribe' and 'subscribePattern' are given"),
        ({"path": "/s", "subscribepattern": "a("}, READ, "'subscribePattern' is 'a\\(': expected a regular expression"),
        ({"path": "/s", "subscribepattern": " "}, READ, "'subscribePattern' is ' ': expected text"),
        ({**READING, "kafka.group.id": ""}, READ, "option 'kafka.group.id' is '': expected text"),
        ({**READING, "endingoffsets": "latest"}, READ_STREAM, "'endingOffsets' belongs to read, not to readStream"),
        ({**READING, "endingtimestamp": "5"}, READ_STREAM, "'endingTimestamp' belongs to read, not to readStream"),
        (
            {**READING, "startingtimestamp": "x"},
            READ,
            "'startingTimestamp' is 'x': expected milliseconds since 1970, a time such as 2024",
        ),
        ({**READING, "startingtimestamp": "-5"}, READ, "'startingTimestamp' is '-5': expected milliseconds"),
        ({**READING, "startingtimestamp": str(2**63)}, READ, "'startingTimestamp' is .*expected milliseconds"),
        ({**READING, "startingtimestamp": "-5 fortnights"}, READ, "expected a time before now such as -10 minutes"),
        ({**READING, "startingoffsets": "-5 fortnights"}, READ, "'startingOffsets' is .*such as -10 minutes"),
        ({**READING, "startingoffsetsbytimestamp": "5"}, READ, "is '5': expected JSON such as .*1700000000000"),
        (
            {**READING, "startingoffsetsbytimestamp": '{"a":{"0":-1}}'},
            READ,
            "timestamp -1 for partition 0 of topic 'a': expected milliseconds since 1970",
        ),
        ({**READING, "endingoffsetsbytimestamp": '{"c":{"0":1}}'}, READ, "'endingOffsetsByTimestamp' names topic 'c'"),
        ({**READING, "startingoffsetsbytimestampstrategy": "none"}, READ, "expected one of error, latest"),
        (
            {**READING, "minoffsetspertrigger": "9", "maxoffsetspertrigger": "5"},
            READ_STREAM,
            "'minOffsetsPerTrigger' is 9: expected at most 'maxOffsetsPerTrigger', which is 5",
        ),
        *(
            (
                {**READING, name: "true"},
                use,
                f"unknown option '{name}' for {use} of txnlog; the nearest known name is '\\w+'",
            )
            for name in ("alignment", "catalogTable")
            for use in (READ, READ_STREAM, SCHEMA)
        ),
        (
            {**READING, "maxtriggerdelay": "soon"},
            READ_STREAM,
            "'maxTriggerDelay' is 'soon': expected a whole number of milli",
        ),
        ({**READING, "fetchoffset.numretries": "-1"}, READ, "'fetchOffset.numRetries' is '-1'"),
        (
            {**READING, "rowspertask": "5", "maxrecordsperpartition": "6"},
            READ,
            "'maxRecordsPerPartition' is given twice",
        ),
        ({**READING, "maxoffsetspertrigger": "0"}, READ_STREAM, "'maxOffsetsPerTrigger' is '0': .* from 1"),
        ({**READING, "isolationlevel": "read_comitted"}, READ, "did you mean 'read_committed'"),
        ({**READING, "kafka.isolation.level": "none"}, READ, "option 'isolationLevel' is 'none'"),
        ({**READING, "subscribe": " , "}, READ, "'subscribe' is ' , ': expected names of topics separated by commas"),
        ({**READING, "columns": "value,,key"}, READ, "'columns' is 'value,,key': expected names"),
        ({**READING, "columns": "key,key"}, READ, "each name once"),
        ({**READING, "includeheaders": "yes"}, READ, "'includeHeaders' is 'yes': expected true or false"),
        ({"path": "/s", "assign": '{"a":[0,-1]}'}, READ, "'assign' has .* for topic 'a'"),
        ({"path": "/s", "assign": '{"a":[0'}, READ, "'assign' is not JSON at line 1, column 8"),
        ({**READING, "startingoffsets": '{"a":'}, READ, "'startingOffsets' is not JSON at line 1, column 6"),
        ({**READING, "startingoffsets": "[1]"}, READ, "expected earliest, latest or JSON"),
        ({**READING, "startingoffsets": '{"a":5}'}, READ, "has 5 for topic 'a': expected offsets by partition"),
        ({**READING, "startingoffsets": '{"a":{"x":5}}'}, READ, "partition 'x' for topic 'a'"),
        ({**READING, "startingoffsets": '{"a":{"0":-3}}'}, READ, "offset -3 for partition 0 of topic 'a'"),
        ({"path": "/s", "assign": '{"a":[0],"a":[1]}'}, READ, "'assign' names 'a' twice: expected each name once"),
        ({**READING, "startingoffsets": '{"a":{"0":3,"0":4}}'}, READ, "'startingOffsets' names '0' twice"),
        ({**READING, "startingoffsets": '{"c":{"0":3}}'}, READ, "topic 'c', which is not read"),
        ({**READING, "startingoffsets": '{"a":{"0":5.0}}'}, READ, "offset 5.0 for partition 0 of topic 'a'"),
        ({**READING, "startingoffsets": '{"a":{"0":true}}'}, READ, "offset True for partition 0 of topic 'a'"),
        ({**READING, "startingoffsets": '{"a":{"0":NaN}}'}, READ, "offset nan for partition 0 of topic 'a'"),
        ({**READING, "startingoffsets": f'{{"a":{{"0":{2**63}}}}}'}, READ, f"offset {2**63} for partition 0"),
        ({**READING, "startingoffsets": f'{{"a":{{"{2**31}":5}}}}'}, READ, f"partition '{2**31}' for topic 'a'"),
        ({**READING, "startingoffsets": '{"\\ud800":{"0":5}}'}, READ, "a topic of option 'startingOffsets' has half"),
        ({**READING, "asofentry": str(2**63)}, READ, f"'asOfEntry' is '{2**63}': expected a whole number from 0 to"),
        ({**READING, "asofentry": "5.0"}, READ, "'asOfEntry' is '5.0': expected a whole number"),
        ({**READING, "asofentry": "9" * 5000}, READ, "'asOfEntry' is .*: expected a whole number"),
        ({**READING, "subscribe": "\ud800"}, READ, "option 'subscribe' has half of a surrogate pair"),
        ({"path": "/s", "assign": '{"a":[5.0]}'}, READ, "'assign' has list of length 1 for topic 'a'"),
        ({"path": "/s", "assign": f'{{"a":[{2**31}]}}'}, READ, "'assign' has list of length 1 for topic 'a'"),
        ({**READING, "startingoffsets": "latest"}, READ, "cannot be latest"),
        ({**READING, "startingoffsets": '{"a":{"0":-1}}'}, READ, "cannot be latest"),
        ({**READING, "endingoffsets": "earliest"}, READ, "'endingOffsets' cannot be earliest"),
        ({**READING, "endingoffsets": '{"a":{"0":-2}}'}, READ, "'endingOffsets' cannot be earliest"),
        ({**READING, "asofentry": "1", "asoftimestamp": "2"}, READ, "exclude each other"),
        ({**READING, "txnlog.path": "/other"}, READ, "'path' is given twice"),
        ({**READING, "limit": "5"}, READ, "option 'limit' needs the option 'table'"),
        ({**READING, "table": "entries"}, READ, "option 'table' reads a system table"),
        ({**READING, "table": "entries"}, READ_STREAM, "'table' belongs to read, not to readStream"),
    ],
)
def test_a_wrong_reading_option_is_named(given: dict[str, str], use: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ReadOptions.parse(given, use)


@pytest.mark.parametrize(
    ("given", "use", "message"),
    [
        ({"path": "/s", "subscribe": "a"}, WRITE, "'subscribe' belongs to read and readStream, not to write"),
        (
            {"path": "/s", "txnappid": "a", "txnversion": str(2**63)},
            WRITE,
            "'txnVersion' is .* from 0 to 92233",
        ),
        ({"path": "/s", "topic": "a", "createtopicpartitions": "10001"}, WRITE, "whole number from 1 to 10000"),
        ({"path": "/s", "txnappid": "a"}, WRITE, "'txnVersion' is missing"),
        ({"path": "/s", "txnversion": "1"}, WRITE, "'txnAppId' is missing"),
        ({"path": "/s", "txnappid": "a", "txnversion": "1"}, WRITE_STREAM, "belongs to write, not to writeStream"),
        ({"path": "/s", "createtopic": "true"}, WRITE, "'createTopic' needs the option 'topic'"),
        ({"path": "/s", "transactionalid": " "}, WRITE, "'transactionalId' is ' ': expected text"),
        ({"path": "/s", "topik": "t"}, WRITE, "did you mean 'topic'"),
    ],
)
def test_a_wrong_writing_option_is_named(given: dict[str, str], use: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        WriteOptions.parse(given, use)


@pytest.mark.parametrize("name", ["startingOfsets", "kafka.Session.Timeout.Msec", "TxnLog.startingOfsets"])
def test_an_unknown_name_is_shown_as_it_was_given(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown option {name!r} for read of txnlog; did you mean"):
        ReadOptions.parse({**READING, name: "5"}, READ)


def test_calls_take_numbers_and_truth_values_as_spark_does() -> None:
    numpy = pytest.importorskip("numpy")
    named = {"a": 5, "b": True, "c": numpy.int32(-7), "d": numpy.bool_(False), "e": "text"}
    assert option_texts({"f": 10**30}, named) == {
        "f": "1" + 30 * "0", "a": "5", "b": "true", "c": "-7", "d": "false", "e": "text",
    }  # fmt: skip


@pytest.mark.parametrize(("value", "kind"), [(5.0, "float"), (None, "NoneType"), ({"a": 1}, "dict"), (b"x", "bytes")])
def test_a_value_of_another_type_is_named_and_not_shown(value: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^option 'storage.key' is of type {kind}: expected a str, a whole number"):
        option_texts({"storage.key": value}, {})


def test_a_stream_to_a_table_needs_its_options_again() -> None:
    # All that Spark passes on for toTable().
    with pytest.raises(ConfigurationError, match=r"'path' is missing.*toTable\(\) of a stream needs them again"):
        WriteOptions.parse({"checkpointlocation": "/c"}, WRITE_STREAM)


@pytest.mark.parametrize("use", [READ, READ_STREAM, SCHEMA, WRITE, WRITE_STREAM])
def test_a_use_without_any_option_names_the_way_of_sql(use: Any) -> None:
    parse: Any = WriteOptions.parse if use in (WRITE, WRITE_STREAM) else ReadOptions.parse
    with pytest.raises(
        ConfigurationError, match=r"no options were given.*AS SELECT.*CREATE TABLE t USING txnlog.*INSERT INTO t"
    ):
        parse({}, use)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250", 250), ("250ms", 250), ("30s", 30_000), ("15m", 900_000), ("2 min", 120_000), ("1h", 3_600_000)],
)
def test_durations_are_those_of_spark(text: str, milliseconds: int) -> None:
    options = ReadOptions.parse({**READING, "maxtriggerdelay": text}, READ_STREAM)
    assert options.trigger.delay_ms_max == milliseconds
    assert ReadOptions.parse(READING, READ_STREAM).trigger.delay_ms_max == 900_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("-10 minutes", 600_000),
        ("-1day", 86_400_000),
        (" - 2 hours", 7_200_000),
        ("-3s", 3_000),
        ("-1 week", 604_800_000),
    ],
)
def test_relative_starts_are_times_before_now(text: str, milliseconds: int) -> None:
    for option in ("startingoffsets", "startingtimestamp"):
        bound = ReadOptions.parse({**READING, option: text}, READ).starting
        assert (bound.time, bound.unmatched) == (TimeAgo(milliseconds), "latest")


def test_a_timestamp_for_all_partitions_comes_first_then_timestamps_then_offsets() -> None:
    by_timestamp = {"startingoffsetsbytimestamp": '{"a":{"0":7}}'}
    given = {**READING, "startingoffsets": "latest", **by_timestamp, "startingtimestamp": "9"}
    assert ReadOptions.parse(given, READ).starting.time == 9
    assert ReadOptions.parse({**READING, "startingoffsets": "latest", **by_timestamp}, READ).starting.times == {
        "a": {0: 7}
    }


def test_topics_are_listed_as_in_sparks_kafka_source() -> None:
    assert ReadOptions.parse({**READING, "subscribe": " a,,b , a,"}, READ).topics == ("a", "b")


def test_kafkas_names_stand_for_ours() -> None:
    given = {"kafka.bootstrap.servers": "/s", "topic": "t", "kafka.isolation.level": "read_uncommitted"}
    options = ReadOptions.parse(given, READ)
    assert (options.path, options.topics, options.isolation) == ("/s", ("t",), "read_uncommitted")
    assert WriteOptions.parse({"path": "/s", "txnlog.transactional.id": "x"}, WRITE).transactional_id == "x"


def test_store_settings_are_handed_on_and_sparks_own_options_are_not() -> None:
    given = {**READING, "storage.endpoint_url": "http://x", "store.fsync": "false", "checkpointlocation": "/c"}
    assert ReadOptions.parse(given, READ_STREAM).store == {"storage.endpoint_url": "http://x", "store.fsync": "false"}


def test_no_value_of_a_store_setting_is_shown() -> None:
    secret = {"storage.secret": "hush", "storage.client_kwargs": '{"aws_session_token": "hush"}'}
    for options in (
        ReadOptions.parse({**READING, **secret}, READ),
        WriteOptions.parse({"path": "/s", **secret}, WRITE),
    ):
        assert "hush" not in repr(options)
        assert "storage.secret" in repr(options)
        assert "path='/s'" in repr(options)


@pytest.mark.parametrize(("use", "expected"), [(READ, "earliest"), (READ_STREAM, "latest")])
def test_a_batch_starts_at_the_earliest_record_and_a_stream_at_the_latest(use: Any, expected: str) -> None:
    assert ReadOptions.parse(READING, use).starting.offsets == expected


SAMPLES = {
    "subscribe": "a",
    "subscribePattern": "a.*",
    "assign": '{"a":[0]}',
    "topic": "a",
    "startingTimestamp": "5",
    "startingOffsets": "-10 minutes",
    "startingOffsetsByTimestamp": '{"a":{"0":1}}',
    "endingTimestamp": "-1h",
    "endingOffsets": '{"a":{"0":5}}',
    "startingOffsetsByTimestampStrategy": "latest",
    "endingOffsetsByTimestamp": '{"a":{"0":1}}',
    "filters": '[["offset", ">", 5]]',
    "columns": "value",
    "kafka.group.id": "g",
    "autoOffsetReset": "latest",
    "kafka.maxoffsetspertrigger": "5",
    "kafka.transactional.id": "id",
    "txnlog.isolation.level": "read_uncommitted",
    "storage.secret": "hush",
}
"""Texts that the options take, where their defaults are none; and names with a prefix."""


def outcome(given: Any, use: Any) -> object:
    try:
        return ReadOptions.parse(given, use, parallelism=3)
    except ConfigurationError as error:
        return str(error)


@pytest.mark.parametrize("use", [READ, READ_STREAM])
@pytest.mark.parametrize("name", sorted({*SAMPLES, *(option.name for option in OPTIONS)}))
def test_what_was_parsed_for_the_schema_is_as_if_parsed_for_the_use(name: str, use: Any) -> None:
    default = next((option.default for option in OPTIONS if option.name == name), None)
    what = {} if name in ("subscribe", "subscribePattern", "assign", "topic") else {"subscribe": "a"}
    for value in (SAMPLES.get(name, default or "5"), "latest", "true"):
        given = {"path": "/s", **what, name.lower(): value}
        try:
            parsed = pickle.loads(pickle.dumps(parse_given(given, SCHEMA)))
        except ConfigurationError:
            assert isinstance(outcome(given, use), str), "what the schema refuses, each use does"
            continue
        assert "hush" not in repr(parsed)
        assert outcome(parsed, use) == outcome(given, use)


def test_the_schema_is_asked_for_with_the_options_of_either_read() -> None:
    assert ReadOptions.parse({**READING, "maxoffsetspertrigger": "5"}, SCHEMA).trigger.rows_max == 5
    assert ReadOptions.parse({**READING, "asofentry": "5"}, SCHEMA).as_of == AsOf(entry=5)


def test_every_option_has_a_meaning_and_a_default_that_parses() -> None:
    for option in OPTIONS:
        assert re.search(r"\w.*[.]$", option.meaning), option.name
        if option.default is not None:
            option.parse(option.name, option.default)
