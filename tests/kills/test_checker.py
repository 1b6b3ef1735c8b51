"""The checker of runs under kills sees every way in which a sink can be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from sparktxn import Store
from sparktxn.maintenance import rewrite
from tests.kills.blows import Blows
from tests.kills.checker import check
from tests.kills.queries import OUTPUTS

BATCH = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True) as opened:
        for topic in OUTPUTS:
            opened.create_topic(topic, 2)
        yield opened


def commit(store: Store, numbers: Sequence[int], partition: int | None = None) -> None:
    """Commit numbers in one transaction over both topics, even ones in the first."""
    columns: dict[str, pa.Array] = {
        "key": pa.array([str(number % 2) for number in numbers]),
        "value": pa.array([f"{number}|0.5" for number in numbers]),
        "topic": pa.array([OUTPUTS[number % 2] for number in numbers]),
    }
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(numbers), pa.int32())
    stager = store.stage_plan(OUTPUTS).open(seed=0)
    stager.write(pa.table(columns))
    store.commit(stager.finish(), transactional_id="tests")


def problems(store: Store, batches: int = 2) -> str:
    return "\n".join(check(Path(store.uri), batches, BATCH).problems)


def test_whole_micro_batches_in_order_are_right(store: Store) -> None:
    commit(store, [0, 1, 2, 3])
    commit(store, [4, 5, 6, 7])
    findings = check(Path(store.uri), 2, BATCH)
    assert (findings.batches, findings.rows, findings.problems) == (2, 8, ())


def test_micro_batches_whose_segments_were_merged_into_one_file_are_right(store: Store) -> None:
    for first in (0, 4, 8):
        commit(store, range(first, first + 4))
    assert rewrite(store, {"rewrite.min.segments": 2}).ranges
    commit(store, [12, 13, 14, 15])
    assert problems(store, 4) == ""


def test_a_micro_batch_that_is_there_twice_is_wrong(store: Store) -> None:
    commit(store, [0, 1, 2, 3])
    commit(store, [0, 1, 2, 3])
    assert "4 numbers are there more than once: [0, 1, 2, 3]" in problems(store, 1)


def test_half_a_micro_batch_is_wrong_though_the_next_entry_completes_it(store: Store) -> None:
    commit(store, [0, 2])
    commit(store, [1, 3])
    found = check(Path(store.uri), 1, BATCH)
    assert [problem.split(":")[1] for problem in found.problems] == [" 2 numbers of 1 micro-batches are missing"]


def test_a_lost_micro_batch_is_wrong(store: Store) -> None:
    commit(store, [0, 1, 2, 3])
    commit(store, [8, 9, 10, 11])
    assert "4 numbers of 3 micro-batches are missing: [4, 5, 6, 7]" in problems(store)


def test_too_few_micro_batches_are_wrong(store: Store) -> None:
    commit(store, [0, 1, 2, 3])
    assert "ends with 1 whole micro-batches: expected 2" in problems(store)


def test_two_micro_batches_in_one_entry_are_wrong(store: Store) -> None:
    commit(store, [0, 1, 2, 3, 4, 5, 6, 7])
    assert "there were 0 micro-batches and now are 2" in problems(store)


def test_a_micro_batch_of_two_inputs_is_right_if_spark_has_recorded_it_so(store: Store) -> None:
    commit(store, [0, 1, 2, 3])
    commit(store, [4, 5, 6, 7, 8, 9, 10, 11])
    assert check(Path(store.uri), 3, BATCH, ends=[1, 3]).problems == ()
    assert "there were 1 micro-batches and now are 3" in problems(store, 3)
    for ends in ([1, 2, 3], [3]):
        assert check(Path(store.uri), 3, BATCH, ends=ends).problems


def test_the_end_of_a_query_is_counted_in_inputs(tmp_path: Path) -> None:
    blows = Blows(tmp_path)
    assert (blows.recorded(), blows.ends()) == (0, [])
    for batch, offset in enumerate(['{"logOffset":0}', '{"logOffset":2}', '{"offset":30,"timestamp":7}']):
        for folder, text in (("offsets", f"v1\n{{}}\n{offset}"), ("commits", "v1\n{}")):
            path = tmp_path / "checkpoint" / folder / str(batch)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (tmp_path / "checkpoint" / "commits" / ".2.crc").touch()
    assert (blows.recorded(), blows.ends()) == (3, [1, 3, 3])


def test_a_key_out_of_order_is_wrong(store: Store) -> None:
    commit(store, [2, 1, 0, 3])
    assert "has 0 after 2, of the same key" in problems(store, 1)


def test_a_key_in_two_partitions_is_wrong(store: Store) -> None:
    commit(store, [0, 1, 2, 3], partition=0)
    commit(store, [4, 5, 6, 7], partition=1)
    assert "is in partitions 0 and 1" in problems(store)
