"""Segments that many stagers leave to the entry: one commit brings them within what an entry carries."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn import SinkCommit, Store, read_task
from sparktxn._engine.format import names
from sparktxn._engine.format.segment import checksum
from sparktxn._rows.stage.stagedsegment import INLINE_LIST_BYTES_MAX, StagedSegment
from sparktxn.errors import ConfigurationError, StoreError
from tests.seeds import examples
from tests.unit.stage.stores import CountingIds

PARTITIONS = 2
SIZES = st.sampled_from([1, 10, 300, 9_000, 20_000])
"""Bytes of a value: some leave several of them to the entry, and of the largest a task uploads each."""

_stores = CountingIds()


def opened(**options: object) -> Store:
    store = Store.open(f"memory://gathered-{_stores.token()}", options=options, create=True)
    store.create_topic("t", PARTITIONS)
    return store


def staged(store: Store, rows: Sequence[tuple[int, bytes]], *, inline: bool = True) -> list[StagedSegment]:
    """What one task stages of (partition, value) rows."""
    stager = store.stage_plan(["t"]).open(seed=0, default_topic="t", inline=inline)
    stager.write(
        pa.table(
            {
                "value": pa.array([value for _, value in rows], pa.binary()),
                "partition": pa.array([partition for partition, _ in rows], pa.int32()),
            }
        )
    )
    return stager.finish()


def read(store: Store) -> dict[int, list[bytes]]:
    view = store.view(["t"])
    found: dict[int, list[bytes]] = defaultdict(list)
    for task in store.plan(view, store.ranges(view)):
        for batch in read_task(task, store.options):
            found[task.partition] += batch.column("value").to_pylist()
    return dict(found)


def segments(store: Store) -> list[str]:
    view = store.view(["t"])
    return [segment.name for task in store.plan(view, store.ranges(view)) for segment in task.segments]


def noise(seed: int, size_bytes: int) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size_bytes)


tasks = st.lists(st.lists(st.tuples(st.integers(0, PARTITIONS - 1), SIZES), max_size=6), min_size=1, max_size=24)


@settings(max_examples=examples(25, 250))
@given(drawn=tasks, limit=st.sampled_from([0, 100, 49_152]))
def test_all_rows_are_committed_in_the_order_of_the_tasks(drawn: list[list[tuple[int, int]]], limit: int) -> None:
    rows = [
        [(partition, noise(1_000 * task + place, size)) for place, (partition, size) in enumerate(some)]
        for task, some in enumerate(drawn)
    ]
    expected: dict[int, list[bytes]] = defaultdict(list)
    for partition, value in (row for some in rows for row in some):
        expected[partition].append(value)
    with opened() as executor:
        messages = [segment for some in rows for segment in staged(executor, some)]
        # The driver may have another setting than the tasks had.
        with Store.open(executor.uri, options={"store.append.inline.bytes": limit}) as driver:
            before = driver.log.entry
            driver.commit(messages, transactional_id="job")
            assert driver.log.entry - before <= 2, "the identity and the transaction"
            assert read(driver) == expected


def test_small_segments_of_many_tasks_become_one() -> None:
    with opened() as store:
        messages = [segment for task in range(50) for segment in staged(store, [(0, b"%d" % task), (1, b"x")])]
        assert len(messages) == 100
        store.commit(messages, transactional_id="job")
        assert [names.is_inline(name) for name in segments(store)] == [True, True]
        assert read(store)[0] == [b"%d" % task for task in range(50)]


def test_what_an_entry_cannot_carry_is_uploaded_in_few_files() -> None:
    with opened() as store:
        messages = [segment for task in range(40) for segment in staged(store, [(task % 2, noise(task, 8_000))])]
        assert sum(len(segment.data) for segment in messages) > INLINE_LIST_BYTES_MAX
        store.commit(messages, transactional_id="job")
        assert [names.is_inline(name) for name in segments(store)] == [False, False]


def test_a_replayed_batch_is_known_whether_or_not_its_entry_carries_it() -> None:
    with opened() as store:
        sink = SinkCommit("query", "run", 0)
        rows = [[(0, b"a"), (1, b"b")], [(0, b"c")]]
        first = store.commit(
            [segment for some in rows for segment in staged(store, some)], transactional_id="q", sink=sink
        )
        again = [segment for some in rows for segment in staged(store, some, inline=False)]
        replayed = store.commit(again, transactional_id="q", sink=sink)
        assert (replayed.replayed, replayed.entry, replayed.mismatch) == (True, first.entry, None)
        assert read(store) == {0: [b"a", b"c"], 1: [b"b"]}


@pytest.mark.parametrize("transactional_id", ["job", None])
def test_a_commit_whose_upload_failed_takes_effect_when_it_is_called_again(
    monkeypatch: pytest.MonkeyPatch, transactional_id: str | None
) -> None:
    with opened(**{"store.request.timeout.ms": 100}) as store:
        messages = [segment for task in range(40) for segment in staged(store, [(0, noise(task, 8_000))])]
        put = type(store.log.objects).put_if_absent

        def refused(objects: object, name: str, data: bytes, **named: object) -> object:
            if name.startswith("topics/"):
                raise StoreError("no answer")
            return put(objects, name, data, **named)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(type(store.log.objects), "put_if_absent", refused)
            with pytest.raises(StoreError):
                store.commit(messages, transactional_id=transactional_id, timeout_s=0.3)
            assert read(store) == {}
        store.commit(messages, transactional_id=transactional_id)
        assert len(read(store)[0]) == 40


@pytest.mark.parametrize("inline", [False, True])
def test_what_is_committed_twice_is_read_twice(inline: bool) -> None:
    with opened() as store:
        messages = staged(store, [(0, b"a"), (1, b"b")], inline=inline)
        for _ in range(2):
            store.commit(messages, transactional_id="job")
        assert read(store) == {0: [b"a", b"a"], 1: [b"b", b"b"]}


def replaced(segment: StagedSegment, **members: object) -> StagedSegment:
    return StagedSegment(**{name: getattr(segment, name) for name in segment.__struct_fields__} | members)


@pytest.mark.parametrize("data", [b"nonsense", b"\xff" * 40])
def test_bytes_that_are_no_segment_are_refused_before_anything_is_written(data: bytes) -> None:
    with opened() as store:
        (good,) = staged(store, [(0, b"x")])
        (uploaded,) = staged(store, [(0, b"x")], inline=False)
        before = store.log.entry
        for bad in (replaced(good, data=data), replaced(good, data=b""), replaced(uploaded, data=data)):
            with pytest.raises(
                ConfigurationError, match=rf"staged\[1\], segment '{bad.segment}'.*stage the rows again"
            ):
                store.commit([good, bad], transactional_id="job")
        assert store.log.entry == before
        assert read(store) == {}


def test_bytes_that_say_their_checksum_are_refused_as_what_the_caller_gave() -> None:
    with opened() as store:
        (good,) = staged(store, [(0, b"x")])
        bad = replaced(good, data=b"nonsense", size_bytes=8, checksum=checksum(b"nonsense"))
        with pytest.raises(
            ConfigurationError, match=f"staged has data that cannot be read, of segment '{bad.segment}'"
        ):
            store.commit([good, bad], transactional_id="job")
        assert read(store) == {}


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize(("member", "wrong"), [("record_count", 5), ("checksum", "00000000"), ("size_bytes", 3)])
def test_a_segment_that_says_something_else_of_its_records_is_refused(member: str, wrong: object, others: int) -> None:
    """Alone or with a neighbour: a log that took it could not be read any more."""
    with opened() as store:
        (good,) = staged(store, [(0, b"x")])
        bad = replaced(good, **{member: wrong})
        with pytest.raises(ConfigurationError, match="staged"):
            store.commit([*[good] * others, bad], transactional_id="job")
        assert read(store) == {}
