"""What an fsync could not write is never acknowledged: each fsync of a program fails once, then the power is cut."""

from __future__ import annotations

import errno
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sparktxn._engine.objectstore import PutOutcome, local
from sparktxn._engine.objectstore.local import Disk, LocalStore
from sparktxn.errors import ConfigurationError, StoreUnavailable

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads /proc")

Patch = pytest.MonkeyPatch
NAMES = ("_log/1", "topics/a/kafka_partition=0/x", "topics/a/kafka_partition=1/y", "_log/2", "topics/b/z")


class ForgetfulKernel:
    """Names and bytes that a power cut would leave, if the `failing`-th fsync fails and what it has lost is forgotten.

    After the failure everything is marked as clean, so that the next fsync of the same folder or file succeeds.
    """

    def __init__(self, patch: Patch, failing: int) -> None:
        self.fsyncs = 0
        self._failing = failing
        self._names: dict[str, set[str]] = defaultdict(set)
        self._lost: set[str] = set()
        self._lost_bytes: set[int] = set()
        self._kept: list[int] = []
        link, mkdir = os.link, os.mkdir

        def linked(source: str, goal: str) -> None:
            link(source, goal)
            self._names[os.path.dirname(goal)].add(goal)

        def made(path: str, mode: int = 0o777) -> None:
            mkdir(path, mode)
            self._names[os.path.dirname(path)].add(path)

        patch.setattr(os, "link", linked)
        patch.setattr(os, "mkdir", made)
        patch.setattr(os, "fsync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        self.fsyncs += 1
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        unwritten = self._names.pop(path, set())
        if self.fsyncs == self._failing:
            self._lost |= unwritten
            if not os.path.isdir(path):
                self._lost_bytes.add(os.fstat(descriptor).st_ino)
                # Kept open: else the next file may get its number.
                self._kept.append(os.dup(descriptor))
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def survives(self, path: Path) -> bool:
        """True if the file, its name and the names of all folders above it are on the disk."""
        unwritten = self._lost.union(*self._names.values())
        return path.stat().st_ino not in self._lost_bytes and unwritten.isdisjoint(map(str, (path, *path.parents)))

    def close(self) -> None:
        while self._kept:
            os.close(self._kept.pop())


def acknowledged(root: Path) -> Iterator[str]:
    """Put each name as the committer does, which confirms what it is not sure of; return what was called durable."""
    for name in NAMES:
        for _ in range(3):
            with suppress(StoreUnavailable, ConfigurationError):
                store = LocalStore(str(root), fsync=True)
                outcome = store.put_if_absent(name, name.encode())
                if outcome is not PutOutcome.CREATED:
                    store.make_durable(name)
                yield name
                break


def acknowledged_together(root: Path) -> Iterator[str]:
    """Put all names at once, as checkpoints put their parts; return what was called durable."""
    with suppress(StoreUnavailable, ConfigurationError):
        store = LocalStore(str(root), fsync=True)
        outcomes = store.put_each_if_absent([(name, name.encode()) for name in NAMES])
        yield from (name for name, outcome in zip(NAMES, outcomes, strict=True) if outcome is PutOutcome.CREATED)


Program = Callable[[Path], Iterator[str]]


def lost(root: Path, patch: Patch, failing: int, program: Program) -> tuple[int, list[str], list[str]]:
    """(how many fsyncs the program has made, what it has acknowledged, what of that a power cut would take)."""
    with patch.context() as patched:
        # Otherwise what has failed above the folders of all runs would be remembered in the runs that follow.
        patched.setattr(local, "DISK", Disk())
        kernel = ForgetfulKernel(patched, failing)
        names = list(program(root))
    found = [name for name in names if not kernel.survives(root / name)]
    kernel.close()
    return kernel.fsyncs, names, found


def find_lost(folder: Path, patch: Patch, program: Program = acknowledged) -> list[str]:
    """What a power cut would take of what was acknowledged, over all fsyncs that may fail."""
    fsyncs, names, found = lost(folder / "calm", patch, 0, program)
    assert (tuple(names), found) == (NAMES, [])
    for failing in range(1, fsyncs + 1):
        found += [f"fsync {failing}: {name}" for name in lost(folder / str(failing), patch, failing, program)[2]]
    return found


def without_a_memory(patch: Patch) -> None:
    """A failed fsync is tried again."""
    patch.setattr(Disk, "failure", lambda disk, folder: None)


def without_folders_above(patch: Patch) -> None:
    """A folder whose own fsyncs have succeeded is durable, whatever became of its name."""
    patch.setattr(Disk, "failure", lambda disk, folder: disk._failures.get(os.path.realpath(folder)))


def without_other_handles(patch: Patch) -> None:
    """Each handle knows its own failures."""

    def opened(store: LocalStore, root: str, *, fsync: bool) -> None:
        patch.setattr(local, "DISK", Disk())
        init(store, root, fsync=fsync)

    init = LocalStore.__init__
    patch.setattr(LocalStore, "__init__", opened)


@pytest.mark.parametrize("program", [acknowledged, acknowledged_together])
def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path, monkeypatch: Patch, program: Program) -> None:
    assert find_lost(tmp_path, monkeypatch, program) == []


def test_names_that_are_put_together_are_lost_where_a_failure_is_not_reported(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    made_durable = LocalStore._made_durable

    def acknowledges(store: LocalStore, folder: str) -> PutOutcome:
        made_durable(store, folder)
        return PutOutcome.CREATED

    monkeypatch.setattr(LocalStore, "_made_durable", acknowledges)
    assert find_lost(tmp_path, monkeypatch, acknowledged_together) != []


@pytest.mark.parametrize("without", [without_a_memory, without_folders_above, without_other_handles])
def test_a_build_without_the_rule_loses_what_it_has_acknowledged(
    tmp_path: Path, monkeypatch: Patch, without: Callable[[Patch], None]
) -> None:
    without(monkeypatch)
    assert find_lost(tmp_path, monkeypatch) != []


def test_a_failure_above_a_folder_stops_what_is_below_it_and_nothing_else(tmp_path: Path, monkeypatch: Patch) -> None:
    store = LocalStore(str(tmp_path), fsync=True)
    for name in ("topics/a/kafka_partition=0/1", "_log/1"):
        assert store.put_if_absent(name, b"x") is PutOutcome.CREATED
    fsync = os.fsync

    def fails(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/topics/a"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            store.put_if_absent("topics/a/kafka_partition=1/1", b"x")
    for name in ("topics/a/kafka_partition=0/2", "topics/a/kafka_partition=1/2", "topics/a/2"):
        for opened in (store, LocalStore(str(tmp_path), fsync=True)):
            with pytest.raises(StoreUnavailable, match=r"an fsync in '.*/topics/a' has failed .Input/output error."):
                opened.put_if_absent(name, b"x")
    assert LocalStore(str(tmp_path), fsync=False).put_if_absent("topics/a/2", b"x") is PutOutcome.CREATED
    assert store.put_if_absent("_log/2", b"x") is PutOutcome.CREATED


def test_a_store_whose_root_has_failed_can_be_read(tmp_path: Path, monkeypatch: Patch) -> None:
    store = LocalStore(str(tmp_path), fsync=True)
    assert store.put_if_absent("1", b"x") is PutOutcome.CREATED
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with pytest.raises(StoreUnavailable):
            store.make_durable("1")
    opened = LocalStore(str(tmp_path), fsync=True)
    assert opened.get("1") == b"x"
    with pytest.raises(StoreUnavailable, match="start this process again"):
        opened.put_if_absent("2", b"x")


def test_a_failure_that_another_thread_is_being_given_counts(tmp_path: Path, monkeypatch: Patch) -> None:
    """The kernel has given it to one thread, and lets the fsync of another one succeed before the first goes on."""
    store = LocalStore(str(tmp_path), fsync=True)
    assert store.put_if_absent("_log/0", b"x") is PutOutcome.CREATED
    given, goes_on, outcomes = threading.Event(), threading.Event(), {}
    fsync = os.fsync

    def fails_once(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}") and not given.is_set():
            given.set()
            assert goes_on.wait(60)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    def put(name: str) -> None:
        outcomes[name] = store.put_if_absent(name, b"x")

    monkeypatch.setattr(os, "fsync", fails_once)
    threads = [threading.Thread(target=put, args=(name,)) for name in ("_log/1", "_log/2")]
    threads[0].start()
    assert given.wait(60)
    threads[1].start()
    threads[1].join(0.3)
    goes_on.set()
    for thread in threads:
        thread.join()
    assert outcomes == {"_log/1": PutOutcome.UNKNOWN, "_log/2": PutOutcome.UNKNOWN}


def test_a_forked_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    disk = Disk()
    disk._running[threading.Event()] = str(tmp_path)
    child = os.fork()
    if child == 0:
        disk.fsync(str(tmp_path), str(tmp_path))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
