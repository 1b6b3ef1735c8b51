"""`txnlog topics`, as text and as JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn import Producer
from tests.cli.terminal import ok, txnlog


def test_a_created_topic_is_listed() -> None:
    assert ok("topics", "create", "orders", "-p", "3").err == "created topic orders\n"
    assert ok("topics", "list").lines == [
        "topic   partition count  offset count  typed  settings",
        "orders                3             0  no     -",
    ]
    assert ok("topics", "list", "--json").json == [
        {"topic": "orders", "partition_count": 3, "offset_count": 0, "typed": False, "settings": {}}
    ]


def test_internal_topics_are_listed_when_asked_for() -> None:
    ok("topics", "create", "t")
    names = [row["topic"] for row in ok("topics", "list", "--internal", "--json").json]
    assert names[0] == "t"
    assert {"__transaction_state", "__consumer_offsets"} <= set(names)


def test_a_store_without_topics_says_how_to_make_one() -> None:
    ok("topics", "create", "t")
    ok("topics", "delete", "t", "--apply")
    done = ok("topics", "list")
    assert (done.text, done.err) == ("", "no topics: txnlog topics create NAME makes one\n")


def test_a_typed_topic_is_described_with_its_columns() -> None:
    ok("topics", "create", "trips", "--column", "id int64 not null", "--column", "tags list<string>")
    (row,) = ok("topics", "describe", "trips", "--json").json
    assert row["columns"] == [
        {"column": "id", "type": "int64", "nullable": False},
        {"column": "tags", "type": "list<string>", "nullable": True},
    ]
    assert row["partitions"] == [{"partition": 0, "log_start_offset": 0, "last_stable_offset": 0, "log_end_offset": 0}]
    lines = ok("topics", "describe", "trips").lines
    assert "id      int64         no" in lines
    assert "partition  log start offset  last stable offset  log end offset" in lines


def test_a_topic_with_a_key_is_described_as_a_table(folder: Path) -> None:
    own = ("--set", "primary.key=id", "--set", "max.compaction.lag.ms=3600000")
    ok("topics", "create", "customers", "--column", "id int64 not null", "--column", "city string", *own)
    ok("topics", "create", "plain")
    with Producer({"bootstrap.servers": str(folder / "store")}) as producer:
        producer.produce_arrow("customers", pa.table({"id": [1, 2, 1], "city": ["Oslo", "Rome", "Bern"]}))
        producer.produce_arrow("customers", pa.table({"id": [2]}), delete=True)
    (row,) = ok("topics", "describe", "customers", "--json").json
    assert (row["key"], row["not_compacted_rows"]) == (["id"], 4)
    days = (date.fromisoformat(row["deleted_rows_gone_by"]) - datetime.now(UTC).date()).days
    assert days in (9, 10), "an hour, a week of the vacuum, and two rounds of maintenance"
    assert "superseded_rows" not in row
    (row,) = ok("topics", "describe", "customers", "--superseded", "--json").json
    assert (row["latest_rows"], row["superseded_rows"], row["deletes"]) == (1, 2, 1)
    ok("compact", "customers", "--apply")
    shown, plain = ok("topics", "describe", "customers", "plain", "--superseded", "--json").json
    found = [shown[name] for name in ("not_compacted_rows", "latest_rows", "superseded_rows", "deletes")]
    assert found == [0, 1, 0, 1]
    assert "key" not in plain
    ok("topics", "alter", "customers", "--set", "max.compaction.lag.ms=9007199254740992")
    (row,) = ok("topics", "describe", "customers", "--json").json
    assert row["deleted_rows_gone_by"] is None
    assert "not compacted rows" in ok("topics", "describe", "customers").text


def test_several_topics_are_described_each_on_a_line_of_json() -> None:
    ok("topics", "create", "a", "b")
    assert [row["topic"] for row in ok("topics", "describe", "b", "a", "--json").json] == ["b", "a"]


def test_a_topic_is_altered_in_all_that_is_given() -> None:
    ok("topics", "create", "t", "--set", "segment.rows=7", "--column", "id int64")
    done = ok(
        *("topics", "alter", "t", "--partitions", "4", "--set", "compression.type=lz4"),
        *("--unset", "segment.rows", "--column", "tip double"),
    )
    assert done.err == "altered topic t\n"
    (row,) = ok("topics", "describe", "t", "--json").json
    assert (row["partition_count"], row["settings"]) == (4, {"compression.type": "lz4"})
    assert [column["column"] for column in row["columns"]] == ["id", "tip"]


@pytest.mark.parametrize(
    "wrong", [("--set", "segment.rows=many"), ("--column", "a int65"), ("--partitions", "1"), ("--unset", "nothing")]
)
def test_a_wrong_part_leaves_the_topic_as_it_is(wrong: tuple[str, str]) -> None:
    ok("topics", "create", "t", "--column", "id int64", "-p", "2")
    before = ok("topics", "describe", "t", "--json").text
    right = [("--set", "compression.type=lz4"), ("--column", "b int64"), ("--partitions", "3")]
    others = [word for option in right if option[0] != wrong[0] for word in option]
    done = txnlog("topics", "alter", "t", *others, *wrong)
    assert done.code in (1, 2)
    assert ok("topics", "describe", "t", "--json").text == before


def test_a_topic_that_exists_is_an_error_unless_it_is_accepted() -> None:
    ok("topics", "create", "t")
    done = txnlog("topics", "create", "t")
    assert done.code == 1
    assert done.err == "txnlog: topic 't' already exists: --if-not-exists accepts a topic that exists\n"
    done = ok("topics", "create", "t", "u", "--if-not-exists", "--json")
    assert [row["created"] for row in done.json] == [False, True]


def test_whose_times_records_have_is_fixed_once_there_are_some() -> None:
    ok("topics", "create", "t")
    ok("topics", "alter", "t", "--set", "message.timestamp.type=LogAppendTime")
    ok("produce", "-t", "t", stdin=b"v\n")
    before = ok("topics", "describe", "t", "--json").text
    for words in (("--set", "message.timestamp.type=CreateTime"), ("--unset", "message.timestamp.type")):
        done = txnlog("topics", "alter", "t", *words, "--set", "retention.ms=5")
        assert done.code == 1
        assert "'message.timestamp.type' of topic 't' cannot become CreateTime: it has had records" in done.err
    assert ok("topics", "describe", "t", "--json").text == before
    ok("topics", "alter", "t", "--set", "message.timestamp.type=LogAppendTime", "--set", "retention.ms=5")


def test_nothing_is_deleted_without_apply() -> None:
    ok("topics", "create", "t")
    done = ok("topics", "delete", "t", "--json")
    assert [(row["topic"], row["deleted"]) for row in done.json] == [("t", False)]
    assert "add --apply" in ok("topics", "delete", "t").err
    assert [row["topic"] for row in ok("topics", "list", "--json").json] == ["t"]
    assert [row["deleted"] for row in ok("topics", "delete", "t", "--apply", "--json").json] == [True]
    assert ok("topics", "list", "--json").json == []


def test_one_wrong_name_of_several_deletes_nothing() -> None:
    ok("topics", "create", "t")
    done = txnlog("topics", "delete", "t", "other", "--apply")
    assert (done.code, done.text) == (1, "")
    assert "txnlog topics list shows the topics" in done.err
    assert [row["topic"] for row in ok("topics", "list", "--json").json] == ["t"]


def test_the_settings_of_the_store_are_listed_and_altered() -> None:
    ok("topics", "create", "t")
    assert ok("settings").lines == [
        "setting                     value  is default",
        "reject.transaction.message  false  yes",
        "offsets.retention.minutes   10080  yes",
    ]
    assert ok("settings", "--set", "reject.transaction.message=true", "--json").json == [
        {"setting": "reject.transaction.message", "value": "true", "is_default": False},
        {"setting": "offsets.retention.minutes", "value": "10080", "is_default": True},
    ]
    assert ok("settings", "--set", "offsets.retention.minutes=60", "--json").json[1]["value"] == "60"
    assert "true" in ok("settings").text
    assert ok("settings", "--unset", "reject.transaction.message", "--json").json[0]["is_default"]
    done = txnlog("settings", "--set", "retention.ms=5")
    assert (done.code, "unknown store-wide setting" in done.err) == (1, True)


@pytest.mark.parametrize("column", ["_x int64", "_timestamp string", "Kafka_Partition string", "N int64"])
def test_a_column_whose_name_is_reserved_or_taken_changes_nothing(column: str) -> None:
    ok("topics", "create", "t", "--column", "n int64")
    before = ok("topics", "describe", "t", "--json").json
    for words in (("create", "new", "--column", "n int64"), ("alter", "t", "--set", "segment.rows=7", "-p", "5")):
        done = txnlog("topics", *words, "--column", column)
        assert done.code == 1
        assert "is reserved" in done.err or "is not unique: 'n' is declared too" in done.err
    assert ok("topics", "describe", "t", "--json").json == before
    assert [row["topic"] for row in ok("topics", "list", "--json").json] == ["t"]


@pytest.mark.parametrize("name", ["_x", "_entry", "kafka_partition", "N"])
def test_rows_with_such_a_column_are_refused(tmp_path: Path, name: str) -> None:
    ok("topics", "create", "t", "--column", "n int64")
    (tmp_path / "a.csv").write_text(f"n,{name}\n1,2\n")
    (tmp_path / "a.jsonl").write_text(f'{{"n": 1, "{name}": 2}}\n')
    pq.write_table(pa.table({"n": [1], name: [2]}), tmp_path / "a.parquet")
    for file in ("a.csv", "a.jsonl", "a.parquet"):
        done = txnlog("import", "-t", "t", str(tmp_path / file), "--apply")
        assert done.code != 0
        assert f"'{name}'" in done.err
        assert file in done.err
    done = txnlog("produce", "-t", "t", stdin=(tmp_path / "a.jsonl").read_bytes())
    assert done.code != 0
    assert f"there is no column '{name}'" in done.err
    (row,) = ok("topics", "list", "--json").json
    assert row["offset_count"] == 0
