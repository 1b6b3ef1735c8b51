"""The store in a local folder."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sparktxn._engine.objectstore import PutOutcome
from sparktxn._engine.objectstore.local import Disk, LocalStore
from sparktxn._foundation.config.store import StoreSettings
from sparktxn.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from sparktxn.store import Store
from sparktxn.testing.objectstore_tests import ENTRY, ObjectStoreTests, Opening
from tests.seeds import examples


class FolderTruth:
    """Objects as plain files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes | None:
        path = self._root / name
        return path.read_bytes() if path.exists() else None

    def write(self, name: str, data: bytes) -> None:
        (self._root / name).parent.mkdir(parents=True, exist_ok=True)
        (self._root / name).write_bytes(data)


class LocalTests(ObjectStoreTests):
    fsync: bool
    race_rounds = examples(50, 200)

    @pytest.fixture
    def opening(self, tmp_path: Path) -> Opening:
        return Opening(str(tmp_path / "store"), settings=StoreSettings(fsync=self.fsync))

    @pytest.fixture
    def truth(self, tmp_path: Path) -> FolderTruth:
        return FolderTruth(tmp_path / "store")


class TestLocal(LocalTests):
    fsync = True


class TestLocalWithoutFsync(LocalTests):
    fsync = False


def failing(error: int, after: int = 0) -> Callable[..., object]:
    """A system call that fails from its `after`-th use on, and does nothing before."""
    uses = iter(range(10**9))

    def call(*_: object, **__: object) -> None:
        if next(uses) >= after:
            raise OSError(error, os.strerror(error))

    return call


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "store" / "_log").mkdir(parents=True)
    return tmp_path / "store"


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize(("call", "step"), [("link", "link a file"), ("fsync", "fsync a file")])
def test_a_folder_that_cannot_link_or_fsync_is_refused_when_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, step: str
) -> None:
    monkeypatch.setattr(os, call, failing(errno.EPERM))
    with pytest.raises(ConfigurationError, match=f"does not {step} .Operation not permitted.") as raised:
        Opening(str(root)).open()
    assert repr(str(root)) in str(raised.value)
    assert files(root) == []


def test_a_folder_whose_links_overwrite_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", lambda source, goal: None)
    with pytest.raises(ConfigurationError, match="does not refuse a link to a name that is taken"):
        Opening(str(root)).open()


def test_a_folder_that_cannot_fsync_will_do_where_fsync_is_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    store = Opening(str(root), settings=StoreSettings(fsync=False)).open()
    assert store.put_if_absent(ENTRY, b"x") is PutOutcome.CREATED


def test_a_new_folder_is_proven_at_its_first_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Opening(str(tmp_path / "new")).open()
    assert not (tmp_path / "new").exists(), "opening writes nothing"
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    with pytest.raises(ConfigurationError, match="does not link a file"):
        store.put_if_absent(ENTRY, b"x")
    assert files(tmp_path) == []


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="is a file: expected a folder"):
        Opening(str(tmp_path / "file")).open()


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_a_failure_before_the_link_is_told_and_leaves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    store = Opening(str(root)).open()
    assert store.put_if_absent("_log/before", b"x") is PutOutcome.CREATED
    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing(error))
        with pytest.raises(StoreUnavailable, match=os.strerror(error)) as raised:
            store.put_if_absent(ENTRY, b"x")
    assert ENTRY in str(raised.value)
    assert files(root) == ["_log/before"]
    assert store.put_if_absent(ENTRY, b"x") is PutOutcome.CREATED


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
def test_a_link_that_was_refused_is_told(root: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    store = Opening(str(root)).open()
    monkeypatch.setattr(os, "link", failing(error))
    with pytest.raises(StoreUnavailable, match=os.strerror(error)):
        store.put_if_absent(ENTRY, b"x")
    assert files(root) == []


def test_a_link_whose_answer_is_an_io_error_is_unknown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Opening(str(root)).open()
    monkeypatch.setattr(os, "link", failing(errno.EIO))
    assert store.put_if_absent(ENTRY, b"x") is PutOutcome.UNKNOWN


def test_a_name_that_may_not_be_durable_is_unknown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Opening(str(root)).open()
    store.put_if_absent("_log/0", b"x")
    monkeypatch.setattr(os, "fsync", failing(errno.EIO, after=1))  # the file's succeeds, the folder's does not
    assert store.put_if_absent(ENTRY, b"x") is PutOutcome.UNKNOWN
    assert store.get(ENTRY) == b"x"


def traced_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is done from now on for names to be durable, in order."""
    events: list[str] = []
    fsync, link = os.fsync, os.link

    def traced_fsync(descriptor: int) -> None:
        events.append("fsync folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync file")
        fsync(descriptor)

    def traced_link(source: str, goal: str) -> None:
        events.append("link")
        link(source, goal)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "link", traced_link)
    return events


def test_file_then_name_then_folder_reach_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Opening(str(root)).open()
    store.put_if_absent("_log/0", b"x")
    events = traced_steps(monkeypatch)
    store.put_if_absent(ENTRY, b"x")
    assert events == ["fsync file", "link", "fsync folder"]


def test_names_that_are_put_together_cost_one_fsync_of_their_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(root), fsync=True)
    store.put_if_absent("_log/0", b"x")
    events = traced_steps(monkeypatch)
    outcomes = store.put_each_if_absent([("_log/1", b"one"), ("_log/0", b"y"), ("_log/2", b"two")])
    assert outcomes == [PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.CREATED]
    assert events == [*["fsync file", "link"] * 3, "fsync folder"]
    assert store.get_many(["_log/0", "_log/1", "_log/2"]) == [b"x", b"one", b"two"]


def test_the_parts_of_a_checkpoint_become_durable_by_one_fsync(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = Disk.fsync

    def noted(disk: Disk, path: str, folder: str) -> None:
        synced.append(os.path.relpath(path, root))
        fsync(disk, path, folder)

    with Store.open(str(root), create=True) as store:
        store.create_topic("t")
        monkeypatch.setattr(Disk, "fsync", noted)
        store.log.checkpoint()
    (parts,) = [folder for folder in (root / "_log/_checkpoints").iterdir() if folder.is_dir()]
    assert len(list(parts.iterdir())) > 1
    assert synced.count(os.path.relpath(parts, root)) == 1


def test_folders_that_a_put_makes_are_durable_up_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Opening(str(tmp_path / "a" / "store")).open()
    synced: list[str] = []
    fsync = os.fsync

    def traced(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", traced)
    store.put_if_absent("topics/t-1/0/x", b"x")
    below = ["", "a", "a/store", "a/store/topics", "a/store/topics/t-1", "a/store/topics/t-1/0"]
    assert {str(tmp_path / folder) for folder in below} <= {path.rstrip("/") for path in synced}


def test_a_folder_that_was_removed_is_made_again(root: Path) -> None:
    store = Opening(str(root)).open()
    store.put_if_absent(ENTRY, b"x")
    store.delete([ENTRY])
    (root / "_log").rmdir()
    assert store.put_if_absent(ENTRY, b"y") is PutOutcome.CREATED
    assert store.get(ENTRY) == b"y"


def test_leftovers_of_a_killed_writer_are_in_no_listing(root: Path) -> None:
    program = f"""
import os, signal
from sparktxn.testing.objectstore_tests import Opening
store = Opening({str(root)!r}).open()
os.link = lambda source, goal: os.kill(os.getpid(), signal.SIGKILL)
store.put_if_absent({ENTRY!r}, b"half of a put")
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL
    assert len(files(root)) == 1, "the hidden file is what this test is about"
    store = Opening(str(root)).open()
    assert store.list("") == []
    assert list(store.list_names("_log/")) == []
    assert store.get(ENTRY) is None
    assert store.put_if_absent(ENTRY, b"x") is PutOutcome.CREATED


def test_a_folder_that_may_only_be_read_can_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ENTRY).write_bytes(b"x")
    # Permission bits do not bind root, whom tests often run as.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "link", failing(errno.EACCES))
    assert Opening(str(root)).open().get(ENTRY) == b"x"


def test_the_contention_lock_keeps_threads_and_handles_apart(root: Path) -> None:
    opening = Opening(str(root))
    inside, most = 0, 0

    def work(lock_of: Callable[[], object]) -> None:
        nonlocal inside, most
        for _ in range(20):
            with lock_of():  # type: ignore[attr-defined]
                inside += 1
                most = max(most, inside)
                time.sleep(0.000_2)
                inside -= 1

    with closing(opening.open()) as one, closing(opening.open()) as other:
        threads = [threading.Thread(target=work, args=(s.contention_lock,)) for s in (one, one, other, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == 1


def test_a_paused_holder_of_the_contention_lock_stops_nobody(root: Path) -> None:
    opening = Opening(str(root))
    with closing(opening.open()) as paused, closing(opening.open()) as store, paused.contention_lock():
        started_s = time.monotonic()
        for number in range(50):
            with store.contention_lock():
                assert store.put_if_absent(f"_log/{number}", b"x") is PutOutcome.CREATED
        # The first writer waits for a second; each of the fifty would, if it did not remember.
        assert time.monotonic() - started_s < 25


@pytest.mark.parametrize("step", ["put", "make_durable"])
def test_a_failed_fsync_is_never_made_good_by_a_second_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The kernel marks as clean what it could not write: a second fsync succeeds, and the name may be gone."""
    store = Opening(str(root), settings=StoreSettings(fsync=True)).open()
    assert store.put_if_absent("_log/before", b"data") is PutOutcome.CREATED
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing(errno.EIO, after=1 if step == "put" else 0))
        if step == "put":
            assert store.put_if_absent("_log/doubtful", b"data") is PutOutcome.UNKNOWN
        else:
            with pytest.raises(StoreUnavailable, match="fsync"):
                store.make_durable("_log/before")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="another fsync cannot detect") as refused:
            store.make_durable("_log/doubtful" if step == "put" else "_log/before")
        assert not refused.value.transient
        with pytest.raises(StoreUnavailable, match="start this process again"):
            store.put_if_absent("_log/after", b"data")
    assert store.get("_log/after") is None


def test_a_commit_whose_fsync_has_failed_is_never_acknowledged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def fails_for_folders(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "the disk is broken")
        fsync(descriptor)

    with Store.open(str(root), create=True) as opened:
        opened.create_topic("before")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fails_for_folders)
            with pytest.raises(OutcomeUnknown):
                opened.create_topic("t", timeout_s=1)
        with pytest.raises((OutcomeUnknown, StoreUnavailable), match="start this process again"):
            opened.create_topic("u", timeout_s=1)


def test_a_temporary_file_that_is_gone_once_it_was_listed_is_none(tmp_path: Path) -> None:
    """Its writer links and removes it while a vacuum looks, as a link that leads nowhere shows."""
    with closing(LocalStore(str(tmp_path), fsync=True)) as store:
        (tmp_path / f".{'a' * 20}-1").symlink_to(tmp_path / "nowhere")
        (tmp_path / f".{'a' * 20}-2").write_bytes(b"half")
        assert list(store.temporary_files()) == [f".{'a' * 20}-2"]
