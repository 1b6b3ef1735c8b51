"""The conformance kit of object stores: a store that passes it can carry a log.

Subclass `ObjectStoreTests`, or `RemoteObjectStoreTests` for a store that is reached by HTTP, give the fixtures that it
asks for, and let pytest collect the subclass. The kit reads the truth past the store that it tests: a store that
agrees only with itself passes nothing here.
"""
# ruff: noqa: D102 - a test's name says what it shows

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue
from typing import Any, ClassVar, NamedTuple, Protocol

from sparktxn._engine.objectstore import ObjectStore, PutOutcome, open_store
from sparktxn._engine.objectstore.contract import OBJECT_SIZE_MAX
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import Deadline, SystemClock, callers_own_time
from sparktxn.errors import StoreUnavailable, extra_to_install
from sparktxn.testing.faultproxy import FaultProxy, RequestFault

try:
    import pytest
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"the kit for object stores needs pytest: {extra_to_install('testing')}", name=missing.name
    ) from missing

__all__ = ["ObjectStoreTests", "Opening", "RemoteObjectStoreTests", "Truth", "race"]


def __dir__() -> list[str]:
    return sorted(__all__)


ENTRY = "_log/00000000000000000001.json"
RACERS = 8
_BUSY_S = 60.0
_LATE_S = 20.0
"""A busy machine ends a call that late; one that has no time-out ends later."""


class Opening(NamedTuple):
    """How any process opens the store under test."""

    uri: str
    storage: Mapping[str, Any] = {}
    settings: StoreSettings = StoreSettings()

    def open(self) -> ObjectStore:
        """Return a new handle."""
        return open_store(self.uri, settings=self.settings, storage=self.storage, clock=SystemClock())


class Truth(Protocol):
    """What the store holds, read and written without its code."""

    def read(self, name: str) -> bytes | None:
        """Return the object's bytes, or None."""

    def write(self, name: str, data: bytes) -> None:
        """Put the object there."""


def race(
    opening: Opening, racer: int, names: Sequence[str], width: int, start: threading.Barrier, answers: Any
) -> None:
    """Try, as one racer, to create every name with its own bytes, `width` names at a time, all racers at once.

    Puts (racer, outcomes by name) into the queue `answers`.
    """
    with closing(opening.open()) as store, ThreadPoolExecutor(width) as threads:
        store.get(ENTRY)  # connected before the first round
        outcomes: dict[str, str] = {}
        for first in range(0, len(names), width):
            heat = names[first : first + width]
            start.wait()
            results = threads.map(lambda name: store.put_if_absent(name, _racer_bytes(racer, name)), heat)
            outcomes |= {name: result.name for name, result in zip(heat, results, strict=True)}
        answers.put((racer, outcomes))


def _connect(store: ObjectStore) -> None:
    """Read once, for up to a minute: the first request of a busy machine may take longer than the request time-out."""
    deadline_s = time.monotonic() + _BUSY_S
    while True:
        try:
            assert store.get(ENTRY) is None
        except StoreUnavailable:
            if time.monotonic() > deadline_s:
                raise
        else:
            return


def _racer_bytes(racer: int, name: str) -> bytes:
    return f"{name} of racer {racer} ".encode() * 40


class ObjectStoreTests:
    """What every store must do.

    A subclass gives the fixtures `opening` (an `Opening` of a store with no objects) and `truth` (a `Truth` of the same
    store). It may say how many rounds of the race there are, and how many of them are run side by side. Racers are
    processes, or threads if `race_in_threads`: for a store that one process has. A listing of more than `page_size`
    objects has several pages.
    """

    race_rounds: ClassVar[int] = 200
    race_width: ClassVar[int] = 1
    race_in_threads: ClassVar[bool] = False
    page_size: ClassVar[int] = 1_000

    @pytest.fixture
    def opening(self) -> Opening:
        """Return how to open the store."""
        raise NotImplementedError("give the fixture `opening`")

    @pytest.fixture
    def truth(self) -> Truth:
        """Return what the store holds."""
        raise NotImplementedError("give the fixture `truth`")

    @pytest.fixture
    def store(self, opening: Opening) -> Iterator[ObjectStore]:
        """Yield the store under test."""
        with closing(opening.open()) as store:
            yield store

    def run_race(self, opening: Opening, names: Sequence[str]) -> dict[int, dict[str, str]]:
        """Return outcomes by racer and name; racers are started once for all rounds."""
        return self._race_of_threads(opening, names) if self.race_in_threads else self._race(opening, names)

    def _race_of_threads(self, opening: Opening, names: Sequence[str]) -> dict[int, dict[str, str]]:
        start = threading.Barrier(RACERS, timeout=120)
        answers: SimpleQueue[tuple[int, dict[str, str]]] = SimpleQueue()
        with ThreadPoolExecutor(RACERS) as threads:
            racing = [threads.submit(race, opening, r, names, self.race_width, start, answers) for r in range(RACERS)]
        for racer in racing:
            racer.result()
        return dict(answers.get() for _ in racing)

    def _race(self, opening: Opening, names: Sequence[str]) -> dict[int, dict[str, str]]:
        spawn = multiprocessing.get_context("spawn")
        start, answers = spawn.Barrier(RACERS, timeout=120), spawn.Queue()
        processes = [
            spawn.Process(target=race, args=(opening, racer, names, self.race_width, start, answers), daemon=True)
            for racer in range(RACERS)
        ]
        for process in processes:
            process.start()
        found = dict(answers.get(timeout=240) for _ in processes)
        for process in processes:
            process.join(30)
            process.close()
        return found

    def test_get_returns_what_is_there(self, store: ObjectStore, truth: Truth) -> None:
        truth.write(ENTRY, b"\x00all bytes\xff")
        assert store.get(ENTRY) == b"\x00all bytes\xff"
        assert truth.read(ENTRY) == b"\x00all bytes\xff"

    @pytest.mark.parametrize("name", ["_log/00000000000000000009.json", "no/such/folder/object", "top"])
    def test_get_of_an_absent_name_is_none(self, store: ObjectStore, name: str) -> None:
        assert store.get(name) is None
        assert store.get_range(name, 0, 10) is None
        assert store.get_range(name, 0, 0) is None

    def test_get_many_keeps_the_order_and_says_what_is_absent(self, store: ObjectStore, truth: Truth) -> None:
        names = [f"_log/{number:020d}.json" for number in range(40)]
        for name in names[::2]:
            truth.write(name, name.encode())
        assert store.get_many(names) == [name.encode() if index % 2 == 0 else None for index, name in enumerate(names)]
        assert store.get_many([]) == []

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [(0, 4, b"0123"), (3, 5, b"34"), (8, 99, b"89"), (9, 10, b"9"), (10, 12, b""), (50, 60, b""), (4, 4, b"")],
    )
    def test_get_range_is_half_open_and_clipped(
        self, store: ObjectStore, truth: Truth, start: int, end: int, expected: bytes
    ) -> None:
        truth.write("a/object", b"0123456789")
        assert store.get_range("a/object", start, end) == expected

    def test_a_create_wins_a_free_name(self, store: ObjectStore, truth: Truth) -> None:
        assert store.put_if_absent(ENTRY, b"mine") is PutOutcome.CREATED
        assert truth.read(ENTRY) == b"mine"

    def test_a_create_loses_a_taken_name_and_changes_nothing(self, store: ObjectStore, truth: Truth) -> None:
        truth.write(ENTRY, b"theirs")
        assert store.put_if_absent(ENTRY, b"mine, and longer than theirs") is PutOutcome.EXISTS
        assert truth.read(ENTRY) == b"theirs"

    def test_a_create_of_the_same_bytes_also_loses(self, store: ObjectStore) -> None:
        assert store.put_if_absent(ENTRY, b"same") is PutOutcome.CREATED
        assert store.put_if_absent(ENTRY, b"same") is PutOutcome.EXISTS

    def test_a_deleted_name_is_free_again(self, store: ObjectStore, truth: Truth) -> None:
        truth.write(ENTRY, b"old")
        store.delete([ENTRY])
        assert store.put_if_absent(ENTRY, b"new") is PutOutcome.CREATED
        assert truth.read(ENTRY) == b"new"

    def test_a_create_sees_what_another_handle_has_created(self, opening: Opening, store: ObjectStore) -> None:
        with closing(opening.open()) as other:
            assert store.get(ENTRY) is None
            assert other.put_if_absent(ENTRY, b"theirs") is PutOutcome.CREATED
            assert store.put_if_absent(ENTRY, b"mine") is PutOutcome.EXISTS
            assert store.get(ENTRY) == b"theirs"
            assert store.list_names("_log/") == [ENTRY]

    def test_put_replaces(self, store: ObjectStore, truth: Truth) -> None:
        store.put("_log/_last_checkpoint.json", b"one, the longer one")
        store.put("_log/_last_checkpoint.json", b"two")
        assert truth.read("_log/_last_checkpoint.json") == b"two"

    def test_a_large_object_arrives_whole(self, store: ObjectStore, truth: Truth) -> None:
        data = bytes(range(256)) * (20 * 1024 * 1024 // 256)
        assert store.put_if_absent("topics/t-1/0/large.parquet", data) is PutOutcome.CREATED
        assert truth.read("topics/t-1/0/large.parquet") == data
        assert store.get("topics/t-1/0/large.parquet") == data

    @pytest.mark.parametrize("size", [0, OBJECT_SIZE_MAX + 1])
    def test_an_empty_or_oversized_object_is_refused(self, store: ObjectStore, truth: Truth, size: int) -> None:
        with pytest.raises(ValueError, match="expected 1 to"):
            store.put_if_absent(ENTRY, bytes(size))
        with pytest.raises(ValueError, match="expected 1 to"):
            store.put(ENTRY, bytes(size))
        assert truth.read(ENTRY) is None

    @pytest.mark.parametrize(
        "name", ["", "/etc/x", "../x", "a/../../x", "a//b", "a/", ".", "_log/.hidden", "a\\b", "a\0"]
    )
    def test_a_name_outside_the_root_is_refused(self, store: ObjectStore, name: str) -> None:
        uses: list[Callable[[], object]] = [
            lambda: store.get(name),
            lambda: store.get_many([name]),
            lambda: store.get_range(name, 0, 1),
            lambda: store.put_if_absent(name, b"x"),
            lambda: store.put(name, b"x"),
            lambda: store.delete([name]),
        ]
        for use in uses:
            with pytest.raises(ValueError, match="not a name inside the store"):
                use()

    @pytest.mark.parametrize("prefix", ["/", "../", "_log/../../"])
    def test_a_listing_outside_the_root_is_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(ValueError, match="not inside the store"):
            store.list(prefix)
        with pytest.raises(ValueError, match="not inside the store"):
            store.list_names(prefix)

    def test_list_is_sorted_deep_and_by_prefix(self, store: ObjectStore, truth: Truth) -> None:
        names = ["_log/2", "_log/10", "_log/_checkpoints/1.json", "_log/_checkpoints/1/0.json", "_logs/1", "other"]
        for name in names:
            truth.write(name, name.encode())
        assert [info.name for info in store.list("")] == sorted(names)
        assert [info.name for info in store.list("_log/")] == sorted(n for n in names if n.startswith("_log/"))
        assert [info.name for info in store.list("_log/1")] == ["_log/10"]
        assert [info.name for info in store.list("_log/_checkpoints/1")] == names[2:3] + names[3:4]
        assert store.list("nothing/") == []

    def test_list_begins_after_a_name(self, store: ObjectStore, truth: Truth) -> None:
        names = ["t/1/a", "t/1/b", "t/1/c/1", "t/1/c/2", "t/2/a"]
        for name in names:
            truth.write(name, b"x")
        found = {after: [info.name for info in store.list("t/1/", after)] for after in ("t", *names, "t/1/aa", "u")}
        assert found == {after: [name for name in names[:4] if name > after] for after in found}

    def test_list_gives_size_and_time(self, store: ObjectStore) -> None:
        before_ms = time.time() * 1000
        store.put_if_absent("topics/t-1/0/x", b"12345")
        (info,) = store.list("topics/")
        assert info.size_bytes == 5
        # S3 gives whole seconds.
        assert before_ms - 2000 <= info.modified_ms <= time.time() * 1000 + 2000

    def test_list_names_holds_the_objects_of_one_folder_only(self, store: ObjectStore, truth: Truth) -> None:
        for name in ("_log/1", "_log/2", "_log/_checkpoints/1.json", "_logs/1", "top"):
            truth.write(name, b"x")
        assert sorted(store.list_names("_log/")) == ["_log/1", "_log/2"]
        assert list(store.list_names("")) == ["top"]
        assert list(store.list_names("nothing/")) == []
        assert sorted(store.list_names("_log/", "_log/0")) == ["_log/1", "_log/2"]
        assert list(store.list_names("_log/", "_log/1")) == ["_log/2"]
        assert list(store.list_names("_log/", "_log/2")) == []

    def test_a_listing_is_complete_past_one_page(self, store: ObjectStore) -> None:
        names = [f"_log/{number:020d}.json" for number in range(self.page_size + self.page_size // 10)]
        with ThreadPoolExecutor(8) as threads:
            outcomes = list(threads.map(lambda name: store.put_if_absent(name, b"x"), names))
        assert set(outcomes) == {PutOutcome.CREATED}
        assert [info.name for info in store.list("_log/")] == names
        assert sorted(store.list_names("_log/")) == names
        store.delete(names)
        assert store.list("") == []

    def test_delete_takes_what_is_there_and_ignores_what_is_not(self, store: ObjectStore, truth: Truth) -> None:
        for name in ("a/1", "a/2", "a/3"):
            truth.write(name, b"x")
        store.delete(["a/1", "a/absent", "no/folder", "a/3"])
        store.delete([])
        assert [truth.read(name) for name in ("a/1", "a/2", "a/3")] == [None, b"x", None]

    def test_make_durable_takes_an_object_that_is_there(self, store: ObjectStore, truth: Truth) -> None:
        truth.write(ENTRY, b"theirs")
        store.make_durable(ENTRY)
        assert truth.read(ENTRY) == b"theirs"

    def test_the_contention_lock_can_be_taken_again_and_again(self, opening: Opening, store: ObjectStore) -> None:
        with closing(opening.open()) as other:
            for handle in (store, other, store):
                with handle.contention_lock():
                    assert handle.put_if_absent(f"_log/{id(handle)}", b"x") in PutOutcome

    def test_no_request_begins_once_a_deadline_has_passed(self, store: ObjectStore, truth: Truth) -> None:
        truth.write("a/1", b"there")
        uses: list[Callable[[], object]] = [
            lambda: store.get("a/1"),
            lambda: store.get_many(["a/1", "a/2"]),
            lambda: store.get_range("a/1", 0, 1),
            lambda: store.put_if_absent(ENTRY, b"mine"),
            lambda: store.put("a/1", b"mine"),
            lambda: store.list("a/"),
            lambda: store.list_names("a/"),
            lambda: store.delete(["a/1"]),
        ]
        given_up = Deadline(SystemClock(), None)
        given_up.end()
        for deadline in (Deadline(SystemClock(), 0), given_up):
            for use in uses:
                with deadline.governs(), pytest.raises(StoreUnavailable, match="nothing was sent"):
                    use()
                # A later deadline inside does not give it more time; a callback has its own.
                with deadline.governs(), Deadline(SystemClock(), 60).governs(), pytest.raises(StoreUnavailable):
                    use()
        assert truth.read(ENTRY) is None
        with deadline.governs(), callers_own_time():
            assert store.get("a/1") == b"there"
        with Deadline(SystemClock(), 60).governs():
            assert store.get("a/1") == b"there"

    def test_close_may_be_called_twice(self, opening: Opening) -> None:
        store = opening.open()
        store.get(ENTRY)
        store.close()
        store.close()

    def test_a_secret_is_in_no_text_of_the_handle(self, opening: Opening, store: ObjectStore) -> None:
        secret = str(opening.storage.get("secret", "no secret"))
        assert secret not in store.uri
        assert secret not in repr(store)

    def test_no_reader_sees_part_of_an_object(self, opening: Opening, store: ObjectStore) -> None:
        data = b"whole" * 200_000
        names = [f"a/{number}" for number in range(20)]
        with closing(opening.open()) as reader, ThreadPoolExecutor(1) as threads:
            writing = threads.submit(lambda: [store.put_if_absent(name, data) for name in names])
            seen: set[bytes | None] = set()
            while not writing.done():
                seen.update(reader.get_many(names))
            seen.update(reader.get_many(names))
        assert writing.result() == [PutOutcome.CREATED] * len(names)
        assert seen <= {None, data}

    def test_eight_racers_have_one_winner_each_round(self, opening: Opening, truth: Truth) -> None:
        names = [f"_log/{number:020d}.json" for number in range(self.race_rounds)]
        outcomes = self.run_race(opening, names)
        assert sorted(outcomes) == list(range(RACERS))
        for name in names:
            held = truth.read(name)
            owners = [racer for racer in outcomes if held == _racer_bytes(racer, name)]
            created = [racer for racer in outcomes if outcomes[racer][name] == PutOutcome.CREATED.name]
            assert len(owners) == 1, f"{name} holds {held!r}"
            # A client's own retry may report the winner's put as EXISTS; no other writer may get CREATED.
            assert created in ([], owners), f"{name} was created by {created} and holds the bytes of {owners}"
        answered = sum(outcome == PutOutcome.CREATED.name for racer in outcomes.values() for outcome in racer.values())
        assert answered >= 0.9 * len(names), "without faults, winners get the answer that they have won"


class RemoteObjectStoreTests(ObjectStoreTests):
    """What a store that is reached by HTTP must do in addition, behind a proxy that fails by script.

    A subclass gives the fixtures `proxy` (a started `FaultProxy` before the server) and `faulty_opening` (an `Opening`
    of the store of `opening`, through the proxy, with a request time-out of `request_timeout_s`). A create is a request
    of `create_method`.
    """

    request_timeout_s: ClassVar[float] = 1.5
    create_method: ClassVar[str] = "PUT"

    @pytest.fixture
    def proxy(self) -> Iterator[FaultProxy]:
        """Return the proxy."""
        raise NotImplementedError("give the fixture `proxy`")

    @pytest.fixture
    def faulty_opening(self) -> Opening:
        """Return how to open the store through the proxy."""
        raise NotImplementedError("give the fixture `faulty_opening`")

    @pytest.fixture
    def faulty(self, faulty_opening: Opening, proxy: FaultProxy) -> Iterator[ObjectStore]:
        """Yield the store through the proxy, connected."""
        with closing(faulty_opening.open()) as store:
            _connect(store)
            proxy.clear()
            yield store

    @pytest.mark.parametrize("fault", [RequestFault.DROP_AFTER, RequestFault.UNAVAILABLE_AFTER])
    @pytest.mark.parametrize("times", [1, 1000])
    def test_a_lost_answer_is_never_taken_for_a_loss(
        self, faulty: ObjectStore, proxy: FaultProxy, truth: Truth, fault: RequestFault, times: int
    ) -> None:
        proxy.inject(fault, method=self.create_method, path=ENTRY, times=times)
        outcome = faulty.put_if_absent(ENTRY, b"my token")
        assert outcome in (PutOutcome.EXISTS, PutOutcome.UNKNOWN)
        assert faulty.get(ENTRY) == truth.read(ENTRY) == b"my token"

    def test_a_hanging_answer_is_unknown_within_the_deadline(
        self, faulty: ObjectStore, proxy: FaultProxy, truth: Truth
    ) -> None:
        proxy.inject(RequestFault.HANG_AFTER, method=self.create_method, path=ENTRY, times=1000)
        started_s = time.monotonic()
        assert faulty.put_if_absent(ENTRY, b"my token", timeout_s=1.0) is PutOutcome.UNKNOWN
        assert time.monotonic() - started_s < _LATE_S
        assert faulty.get(ENTRY) == truth.read(ENTRY) == b"my token"

    def test_a_black_hole_is_unknown_within_the_deadline_and_holds_nothing(
        self, faulty: ObjectStore, proxy: FaultProxy, truth: Truth
    ) -> None:
        proxy.inject(RequestFault.HANG_BEFORE, method=self.create_method, times=1000)
        started_s = time.monotonic()
        assert faulty.put_if_absent(ENTRY, b"my token", timeout_s=1.0) is PutOutcome.UNKNOWN
        assert time.monotonic() - started_s < _LATE_S
        assert faulty.get(ENTRY) is truth.read(ENTRY) is None
        proxy.clear()
        assert faulty.put_if_absent(ENTRY, b"my token") is PutOutcome.CREATED

    def test_a_black_hole_ends_with_the_request_timeout(self, faulty: ObjectStore, proxy: FaultProxy) -> None:
        proxy.inject(RequestFault.HANG_BEFORE, method=self.create_method, times=1000)
        proxy.inject(RequestFault.HANG_BEFORE, method="GET", times=1000)
        started_s = time.monotonic()
        assert faulty.put_if_absent(ENTRY, b"my token") is PutOutcome.UNKNOWN
        with pytest.raises(StoreUnavailable, match=r"no answer in 1\.5 s"):
            faulty.get(ENTRY)
        assert time.monotonic() - started_s < _LATE_S

    def test_a_black_hole_ends_with_the_callers_deadline(
        self, faulty_opening: Opening, proxy: FaultProxy, truth: Truth
    ) -> None:
        truth.write(ENTRY, b"theirs")
        patient = faulty_opening._replace(settings=StoreSettings(request_timeout_ms=60_000))
        with closing(patient.open()) as store:
            assert store.get(ENTRY) == b"theirs"
            for method in ("GET", "PUT", "POST"):
                proxy.inject(RequestFault.HANG_BEFORE, method=method, times=1000)
            uses: list[Callable[[], object]] = [
                lambda: store.get(ENTRY),
                lambda: store.get_many([ENTRY] * 100),
                lambda: store.get_range(ENTRY, 0, 1),
                lambda: store.put("a/1", b"mine"),
                lambda: store.list("a/"),
                lambda: store.list_names("a/"),
                lambda: store.delete(["a/1"]),
            ]
            started_s = time.monotonic()
            for use in uses:
                with (
                    Deadline(SystemClock(), 0.3).governs(),
                    pytest.raises(StoreUnavailable, match=r"time-out of 0\.3 s"),
                ):
                    use()
            with Deadline(SystemClock(), 0.3).governs():
                assert store.put_if_absent("a/1", b"mine") is PutOutcome.UNKNOWN
            assert time.monotonic() - started_s < 30.0
            proxy.clear()
            assert store.get(ENTRY) == b"theirs", "requests that were given up keep no connection"

    def test_a_conflict_is_unknown_and_nothing_is_there(
        self, faulty: ObjectStore, proxy: FaultProxy, truth: Truth
    ) -> None:
        proxy.inject(RequestFault.CONFLICT_BEFORE, method=self.create_method, times=1000)
        assert faulty.put_if_absent(ENTRY, b"my token") is PutOutcome.UNKNOWN
        assert truth.read(ENTRY) is None
        proxy.clear()
        assert faulty.put_if_absent(ENTRY, b"my token") is PutOutcome.CREATED

    def test_a_busy_store_is_asked_again(self, faulty: ObjectStore, proxy: FaultProxy, truth: Truth) -> None:
        proxy.inject(RequestFault.UNAVAILABLE_BEFORE, method=self.create_method, times=1)
        assert faulty.put_if_absent(ENTRY, b"my token") is PutOutcome.CREATED
        proxy.inject(RequestFault.UNAVAILABLE_BEFORE, method="GET", times=1)
        assert faulty.get(ENTRY) == truth.read(ENTRY) == b"my token"

    def test_a_store_that_stays_busy_is_unavailable_for_reads_and_unknown_for_creates(
        self, faulty: ObjectStore, proxy: FaultProxy, truth: Truth
    ) -> None:
        for method in (self.create_method, "GET"):
            proxy.inject(RequestFault.UNAVAILABLE_BEFORE, method=method, times=1000)
        assert faulty.put_if_absent(ENTRY, b"my token") is PutOutcome.UNKNOWN
        assert truth.read(ENTRY) is None
        with pytest.raises(StoreUnavailable):
            faulty.get(ENTRY)

    def test_a_dropped_read_is_read_again(self, faulty: ObjectStore, proxy: FaultProxy, truth: Truth) -> None:
        truth.write(ENTRY, b"theirs")
        proxy.inject(RequestFault.DROP_AFTER, method="GET", times=2)
        assert faulty.get(ENTRY) == b"theirs"

    def test_a_slow_answer_is_waited_for(self, faulty: ObjectStore, proxy: FaultProxy) -> None:
        proxy.inject(RequestFault.DELAY, method=self.create_method, delay_s=0.3)
        assert faulty.put_if_absent(ENTRY, b"my token") is PutOutcome.CREATED

    def test_reading_is_one_request(self, faulty: ObjectStore, proxy: FaultProxy, truth: Truth) -> None:
        truth.write(ENTRY, b"theirs")
        faulty.get(ENTRY)
        faulty.get_range(ENTRY, 1, 3)
        assert [method for method, _ in proxy.requests] == ["GET", "GET"]

    def test_creating_and_listing_are_one_request_each(self, faulty: ObjectStore, proxy: FaultProxy) -> None:
        faulty.put_if_absent(ENTRY, b"my token")
        faulty.list("_log/")
        faulty.list_names("_log/")
        assert [method for method, _ in proxy.requests] == [self.create_method, "GET", "GET"]
