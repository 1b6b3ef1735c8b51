"""Options: each wrong one is reported by its name, with what was expected, before the store is touched."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.options import OPTIONS, READ, READ_STREAM, SCHEMA, WRITE, WRITE_STREAM, ReadOptions, WriteOptions
from sparktxn import ConfigurationError

READING = {"path": "/s", "subscribe": "a,b"}


@pytest.mark.parametrize(
    ("given", "use", "message"),
    [
        ({"subscribe": "a"}, READ, "option 'path' is missing"),
        ({"path": "/s"}, READ, "exactly one of the options 'subscribe', 'assign' and 'topic'"),
        ({**READING, "topic": "a"}, READ, "'subscribe' and 'topic' are given"),
        ({**READING, "startingofset": "x"}, READ, "unknown option 'startingofset' .*did you mean 'startingOffsets'"),
        ({**READING, "kafka.group.id": "x"}, READ, "unknown option 'kafka.group.id'"),
        ({**READING, "maxoffsetspertrigger": "5"}, READ, "'maxOffsetsPerTrigger' belongs to readStream, not to read"),
        ({**READING, "maxoffsetspertrigger": "0"}, READ_STREAM, "'maxOffsetsPerTrigger' is '0': .* from 1"),
        ({**READING, "isolationlevel": "read_comitted"}, READ, "did you mean 'read_committed'"),
        ({**READING, "kafka.isolation.level": "none"}, READ, "option 'isolationLevel' is 'none'"),
        ({**READING, "subscribe": "a,,b"}, READ, "'subscribe' is 'a,,b': expected names"),
        ({**READING, "subscribe": "a,a"}, READ, "each name once"),
        ({**READING, "includeheaders": "yes"}, READ, "'includeHeaders' is 'yes': expected true or false"),
        ({"path": "/s", "assign": '{"a":[0,-1]}'}, READ, "'assign' has .* for topic 'a'"),
        ({"path": "/s", "assign": '{"a":[0'}, READ, "'assign' is not JSON at line 1, column 8"),
        ({**READING, "startingoffsets": '{"a":'}, READ, "'startingOffsets' is not JSON at line 1, column 6"),
        ({**READING, "startingoffsets": "[1]"}, READ, "expected earliest, latest or JSON"),
        ({**READING, "startingoffsets": '{"a":5}'}, READ, "has 5 for topic 'a': expected offsets by partition"),
        ({**READING, "startingoffsets": '{"a":{"x":5}}'}, READ, "partition 'x' for topic 'a'"),
        ({**READING, "startingoffsets": '{"a":{"0":-3}}'}, READ, "offset -3 for partition 0 of topic 'a'"),
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
    assert ReadOptions.parse(READING, use).starting_offsets == expected


def test_the_schema_is_asked_for_with_the_options_of_either_read() -> None:
    assert ReadOptions.parse({**READING, "maxoffsetspertrigger": "5"}, SCHEMA).rows_per_trigger == 5
    assert ReadOptions.parse({**READING, "asofentry": "5"}, SCHEMA).as_of_entry == 5


def test_every_option_has_a_meaning_and_a_default_that_parses() -> None:
    for option in OPTIONS:
        assert re.search(r"\w.*[.]$", option.meaning), option.name
        if option.default is not None:
            option.parse(option.name, option.default)
