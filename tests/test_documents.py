"""Documents agree with the code and with each other."""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn._engine.format import decodeguard
from sparktxn._engine.format.commands import Command
from sparktxn._engine.format.segment import RECORD_SCHEMA, checksum, encode_segment
from sparktxn._engine.state import limits
from sparktxn._foundation.config.settings import Setting, read_properties
from sparktxn._foundation.config.store import STORE_SETTINGS, is_store_setting
from sparktxn._foundation.config.topic import TOPIC_SETTINGS
from sparktxn._foundation.values.structs import StateRecord
from sparktxn._kafka.settings.consumer import CONSUMER_SETTINGS
from sparktxn._kafka.settings.producer import PRODUCER_SETTINGS
from tests.each import each
from tests.kafka_behaviours import BEHAVIOURS, Behaviour
from tests.rocketmq_behaviours import ROCKETMQ_BEHAVIOURS

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROTOCOL = (ROOT / "docs" / "PROTOCOL.md").read_text()


def load_generator(name: str, folder: str = "docs") -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONFORMANCE = load_generator("conformance", "site")


@functools.cache
def shown() -> dict[str, list[str]]:
    """Return the tests by the behaviours that their marks name; reading all tests takes seconds."""
    marks: dict[str, list[str]] = CONFORMANCE.marks()
    return marks


def anchors(document: Path) -> set[str]:
    text = document.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)"></a>', text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | {*named}


def test_the_document_of_settings_is_what_the_tables_say() -> None:
    made = load_generator("generate_configuration").document()
    assert (ROOT / "docs" / "configuration.md").read_text() == made, "run: make docs"


def test_the_page_of_behaviours_has_each_with_the_tests_that_its_marks_name() -> None:
    rows = re.findall(r"^\| (\w[^ |]*|#[^ |]+) ?★? \| .* \| (.*) \|$", CONFORMANCE.document(shown()), re.MULTILINE)
    assert {number: re.findall(r"`([^`]+)`", tests) for number, tests in rows} == {
        number: shown().get(number, []) for number in (*BEHAVIOURS, *ROCKETMQ_BEHAVIOURS)
    }


def test_the_example_of_the_protocol_is_what_the_clients_write() -> None:
    assert load_generator("generate_example").document() == PROTOCOL, "run: make docs"


def test_a_reader_finds_in_the_example_what_the_protocol_says() -> None:
    """The bytes of the document, joined again: sealed, linked, and read without the library."""
    shown = re.findall(r"^`(\S+)`, (\d+) bytes:\n\n```\n(.*?)^```", PROTOCOL, re.MULTILINE | re.DOTALL)
    joined = {name: (int(size), text.replace("\n", "")) for name, size, text in shown}
    previous = "00000000"
    for name, (size, text) in joined.items():
        data = text.encode() if name.endswith(".json") else base64.b64decode(text)
        assert len(data) == size
        if name.startswith("_log/"):
            entry = json.loads(data)
            assert (entry["previous"], entry["checksum"]) == (previous, checksum(data[:-23]))
            previous = entry["checksum"]
        if name.startswith("topics/"):
            (append, _) = entry["commands"]
            assert (append["segment"], append["crc"], append["bytes"]) == (name.split("/")[-1], checksum(data), size)
            assert f"`crc` {append['crc']} in entry {entry['entry']} " in PROTOCOL
            (row,) = pa.ipc.open_file(pa.BufferReader(data)).read_all().to_pylist()
            assert (row["key"], row["value"]) == (b"o-17", b"2 apples")
            break
    else:
        raise AssertionError("the example has no segment")


def test_every_mark_names_a_behaviour_that_is_listed() -> None:
    listed = {*BEHAVIOURS, *ROCKETMQ_BEHAVIOURS}
    assert {number: tests for number, tests in shown().items() if number not in listed} == {}


@each(ROCKETMQ_BEHAVIOURS.values())
def test_every_behaviour_of_rocketmqs_has_a_test(behaviour: Behaviour) -> None:
    assert behaviour.number in shown()


@each(BEHAVIOURS.values())
def test_every_behaviour_of_kafkas_has_a_test_or_a_reason(behaviour: Behaviour) -> None:
    assert behaviour.here or behaviour.number in shown()


def test_the_behaviours_are_numbered_without_a_gap() -> None:
    groups = sum(number.startswith("G") for number in BEHAVIOURS)
    expected = [f"K{number:02}" for number in range(1, len(BEHAVIOURS) - groups + 1)]
    assert list(BEHAVIOURS) == expected + [f"G{number:02}" for number in range(1, groups + 1)]


MARKED = """
import pytest

TABLE = [pytest.param(1, marks=pytest.mark.kafka("K01")), 2]
OTHER = [3]
pytestmark = [pytest.mark.crash, pytest.mark.kafka("K02", "K03")]

@pytest.mark.parametrize("number", TABLE)
@pytest.mark.kafka("K04")
def test_one(number): ...

@pytest.mark.kafka("K05")
class TestMany:
    pytestmark = pytest.mark.kafka("K06")

    @pytest.mark.parametrize("number", [*OTHER, pytest.param(4, marks=[pytest.mark.kafka("K07")])])
    def test_two(self, number):
        assert pytest.mark.kafka("K08")
"""


def test_marks_are_found_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CONFORMANCE, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(MARKED)
    file = "tests/test_it.py"
    assert CONFORMANCE.marks() == {
        "K01": [f"{file}::test_one"],
        "K02": [file],
        "K03": [file],
        "K04": [f"{file}::test_one"],
        "K05": [f"{file}::TestMany"],
        "K06": [f"{file}::TestMany"],
        "K07": [f"{file}::TestMany::test_two"],
    }


@each(DOCUMENTS)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        goal = (document.parent / path).resolve() if path else document
        assert goal.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(goal), f"{target} has no such heading"


def test_the_changelog_says_in_two_screens_what_a_user_gets() -> None:
    """No version was published: there is nothing that something was fixed or changed against."""
    text = (ROOT / "CHANGELOG.md").read_text()
    remedy = "a merge brought old lines back: git checkout main -- CHANGELOG.md, then add your line to its list"
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["[Unreleased]"], remedy
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == ["Added", "Format"], remedy
    assert len(text) < 8_000, remedy


@each(DOCUMENTS)
def test_a_document_has_one_title(document: Path) -> None:
    outside_code = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", outside_code, re.MULTILINE)) == 1


@each(StateRecord.__args__)
def test_the_protocol_lists_every_member_of_every_record(record: Any) -> None:
    section = PROTOCOL.split(f"### `{record.__struct_config__.tag}` record\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == list(record.__struct_fields__)


@each(Command.__args__)
def test_the_protocol_lists_every_member_of_every_command(command: Any) -> None:
    row = re.search(rf"^\| `{command.__struct_config__.tag}` \|.*$", PROTOCOL, re.MULTILINE)
    assert row is not None
    implied = {"transactional_id", "producer_id", "producer_epoch", "transaction"} if "in its tr" in row[0] else set()
    assert [name for name in command.__struct_fields__ if name not in implied and f"`{name}`" not in row[0]] == []


def test_the_protocol_lists_the_short_names_of_members() -> None:
    written_as = {
        field: short
        for command in Command.__args__
        for field, short in zip(command.__struct_fields__, command.__struct_encode_fields__, strict=True)
        if field != short
    }
    table = PROTOCOL.split("short names:\n")[1].split("| `type` |")[0]
    assert dict(re.findall(r"\| `(\w+)` \| `(\w+)` (?=\|)", table)) == written_as


@each(
    [
        ("producer", PRODUCER_SETTINGS),
        ("producer-s3", PRODUCER_SETTINGS),
        ("consumer", CONSUMER_SETTINGS),
        ("topic", TOPIC_SETTINGS),
    ]
)
def test_examples_of_settings_are_accepted(file: str, settings: tuple[Setting, ...]) -> None:
    known = {setting.name: setting for setting in (*settings, *STORE_SETTINGS)}
    given = read_properties(ROOT / "conf" / f"{file}.properties")
    assert given
    for name, value in given.items():
        assert name in known or is_store_setting(name), name
        if name in known:
            known[name].parse(name, value)


@pytest.mark.parametrize("document", ["guarantees", "verification"])
def test_every_guarantee_names_tests_that_exist(document: str) -> None:
    named = re.findall(r"`(tests/[\w./-]+)`", (ROOT / "docs" / f"{document}.md").read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@each(["none", "snappy", "gzip", "lz4", "zstd"])
def test_the_protocol_names_the_features_of_parquet_that_segments_use(compression: str) -> None:
    values = [f"value {number % 3}".encode() for number in range(5_000)]
    columns = {"key": values, "value": values, "headers": [None] * 5_000, "timestamp": range(5_000)}
    table = pa.table({name: pa.array(column, RECORD_SCHEMA.field(name).type) for name, column in columns.items()})
    data = encode_segment(table.cast(RECORD_SCHEMA), segment_format="parquet", compression=compression)
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    section = PROTOCOL.split("## Segments")[1].split("## Schemas")[0]
    for index in range(group.num_columns):
        column = group.column(index)
        codec = {"LZ4": "LZ4_RAW", "UNCOMPRESSED": "uncompressed"}.get(column.compression, f"`{column.compression}`")
        assert codec.strip("`") in section
        assert [encoding for encoding in column.encodings if f"`{encoding}`" not in section] == []


def test_no_guarantee_names_a_test_before_the_table_of_tests() -> None:
    guarantees, tests = (ROOT / "docs" / "guarantees.md").read_text().split("## Which tests show it")
    assert "tests/" not in guarantees.replace("](../tests/kafka_behaviours.py)", "")
    assert set(re.findall(r"^\| ([A-Z][\w ]+) \|", tests, re.MULTILINE)) == {
        re.sub(r"^\d\. ", "", heading)
        for heading in re.findall(r"^## (.*)$", guarantees, re.MULTILINE)
        if heading != "What is outside"
    }


LIMITS = {
    "decoded size of a segment": f"{decodeguard.DECODED_BYTES_MAX >> 30} GiB",
    "rows of a segment": f"2^{decodeguard.ROWS_MAX.bit_length() - 1}",
    "row groups of a Parquet file, record batches of an Arrow file": f"{decodeguard._PARTS_MAX:,}",
    "footer of a Parquet file": f"{decodeguard._FOOTER_BYTES_MAX >> 20} MiB",
    "header of a Parquet page": f"{decodeguard._HEADER_BYTES_MAX >> 10} KiB",
    "depth of nested structures in a Parquet footer": f"{decodeguard._DEPTH_MAX}",
}


@each(LIMITS.items())
def test_the_protocol_states_the_limits_of_the_code(limit: str, value: str) -> None:
    assert f"| {limit} | {value} |" in PROTOCOL


REFUSED_ABOVE = {
    "create_partitions": f"above {limits.PARTITION_COUNT_MAX:,}",
    "init_producer_id": f"not 1 to {limits.TRANSACTION_TIMEOUT_MS_MAX:,},",
    "offset_commit": f"more than {limits.METADATA_BYTES_MAX:,} bytes",
    "append": f"would pass 2^{limits.LOG_END_OFFSET_MAX.bit_length() - 1} ",
    "join_group": f"the group has {limits.GROUP_MEMBERS_MAX:,} ",
}


@each(REFUSED_ABOVE.items())
def test_the_protocol_refuses_above_the_limits_of_the_code(command: str, limit: str) -> None:
    rows = re.findall(rf"^\| .*`{command}`.* \| \d+ \| .*$", PROTOCOL, re.MULTILINE)
    assert any(limit in row for row in rows)


def test_the_protocol_states_the_defaults_of_topic_settings() -> None:
    known = {setting.name: setting.default for setting in TOPIC_SETTINGS}
    section = PROTOCOL.split("## Limits and defaults")[1]
    rows = re.findall(r"^\| `([a-z.]+)` \| `?([\w]+)`? \|", section, re.MULTILINE)
    assert rows
    assert {name: {"none": ""}.get(value, value) for name, value in rows} == {
        name: str(known[name]) for name, _ in rows
    }


def test_the_architecture_names_files_that_exist() -> None:
    rooms = ("_foundation", "_engine", "_rows", "_programs")
    roots = (
        ROOT,
        ROOT / "sparktxn",
        ROOT / "scala-free-python-datasource",
        *(ROOT / "sparktxn" / room for room in rooms),
    )
    named = re.findall(r"`([a-z_]+/[\w./-]+)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert named
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
