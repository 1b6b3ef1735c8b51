"""Objects as files below a local folder, durable by fsync.

A put-if-absent writes a hidden file next to its goal and links it to the name. The link is the one atomic step, and
fails if the name is taken. The file under the name is whole from its first moment (``open("x")`` shows it empty first).
With fsync the data is on the disk before the link, and the link before the answer. A power cut then leaves no name with
half an object. Files whose name begins with a dot are the store's own: a crash may leave one behind, and no reader
opens it.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from sparktxn._engine.objectstore.contract import (
    NEEDS_A_HAND,
    ObjectInfo,
    PutOutcome,
    check_time,
    checked_data,
    checked_object_name,
    checked_prefix,
)
from sparktxn._engine.objectstore.uri import FILE, StoreUri
from sparktxn._engine.objectstore.writehealth import Writes
from sparktxn._foundation.process.clock import Clock, RandomIds, SystemClock, acquired_in_time, time_left_s
from sparktxn.errors import ConfigurationError, StoreUnavailable
from sparktxn.metrics.process import PROCESS

# Fsync on a local disk, and the folders in which one has failed.
#
# After a failed fsync the kernel marks as clean what it could not write. The next fsync of that folder succeeds and
# says nothing about the loss. A failure is therefore remembered for the life of the process, for all stores of the
# process.


class Disk:
    """The only place that makes names durable, and the owner of what is known about failures. Safe for threads."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}
        self._running: dict[threading.Event, str] = {}
        if hasattr(os, "register_at_fork"):
            # The threads that would end these do not exist in the child.
            os.register_at_fork(after_in_child=self._running.clear)

    def fsync(self, path: str, folder: str) -> None:
        """Wait until `path`, which is `folder` or a file in it, is on the disk.

        Raises:
            OSError: it may not be on the disk, or an earlier fsync of `folder`, or of a folder above it, has failed.
        """
        ended = threading.Event()
        others = [other for other, where in list(self._running.items()) if where == folder]
        self._running[ended] = folder
        try:
            descriptor = os.open(path, _READ)
            try:
                os.fsync(descriptor)
            except OSError as error:
                self._failures[os.path.realpath(folder)] = error.strerror or str(error)
                raise
            finally:
                os.close(descriptor)
        finally:
            self._running.pop(ended, None)
            ended.set()
        # The kernel reports a failure once: perhaps to another thread, which has not recorded it yet.
        for other in others:
            other.wait()
        if self.failure(folder) is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def failure(self, folder: str) -> tuple[str, str] | None:
        """Return the folder whose fsync has failed, `folder` or one above it, and the error; None if there is none."""
        if not self._failures:
            return None
        path = os.path.realpath(folder)
        while path not in self._failures:
            above = os.path.dirname(path)
            if above == path:
                return None
            path = above
        return path, self._failures[path]

    def check(self, folder: str) -> None:
        """Check that no fsync of `folder`, or of a folder above it, has failed in this process.

        Raises:
            StoreUnavailable: one has failed.
        """
        if (failure := self.failure(folder)) is not None:
            raise StoreUnavailable(
                f"an fsync in {failure[0]!r} has failed ({failure[1]}): what was written there may not survive a power "
                "cut, and another fsync cannot detect that. Check the disk, then start this process again",
                transient=False,
            )


DISK: Final = Disk()
"""The disk of this process: one for all stores, because a store that is opened again meets the same kernel."""


_HAS_FLOCK: Final[bool] = os.name == "posix"
if _HAS_FLOCK:
    import fcntl


_READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
# A name that is a symbolic link holds no object: what it leads to is not the store's.
_READ_OBJECT: Final = _READ | getattr(os, "O_NOFOLLOW", 0)
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
# Errors of a link that say that it did not take place; after others (EIO, a lost NFS answer) it may have.
_REFUSED: Final = frozenset(
    {errno.EACCES, errno.EDQUOT, errno.EMLINK, errno.ENOENT, errno.ENOSPC, errno.EPERM, errno.EROFS, errno.EXDEV}
)
_LOCK_FILE: Final = "_log/.lock"
_ROOM_BYTES_MIN: Final = 1024 * 1024
"""With less room than this a disk counts as full: a segment may need more."""
_TEMPORARY: Final = re.compile(r"\.[0-9a-v]{20}-\d+")


class LocalStore:
    """A folder of files. Safe for many threads and processes of one machine.

    Raises:
        ConfigurationError: the folder cannot link files, or with `fsync` cannot make them durable. A folder that does
            not exist yet is tried at the first put; a folder that may not be written to can still be read.
    """

    probe_is_cheap = True

    def __init__(self, root: str, *, fsync: bool) -> None:
        self.uri = str(StoreUri(FILE, root))
        self._base = root.rstrip("/") + "/"
        self._fsync = fsync
        self._temporary = f".{RandomIds().token()}-"
        self._counter = itertools.count()
        self._proven = False
        self._ready_folders: set[str] = set()
        self._inside: set[str] = set()
        self._lock = _ContentionLock(self._base + _LOCK_FILE, SystemClock())
        self.writes = Writes(self.uri, SystemClock())
        if os.path.lexists(root) and not os.path.isdir(root):
            raise ConfigurationError(f"store URI {root!r} is a file: expected a folder, or a path that is free")
        is_writable = os.path.isdir(root) and os.access(root, os.W_OK | os.X_OK)
        # A store whose disk is full, or has failed in this process, can be opened and read; a put says why it fails.
        if is_writable and not (fsync and DISK.failure(root) is not None):
            with suppress(StoreUnavailable):
                self._prove_folder()

    def __repr__(self) -> str:
        return f"LocalStore({self.uri!r})"

    def get(self, name: str) -> bytes | None:
        """Return the file's bytes, or None."""
        path = self._path(checked_object_name(name))
        check_time("read", path)
        try:
            descriptor = os.open(path, _READ_OBJECT)
        except FileNotFoundError:
            PROCESS.get.note()
            return None
        except OSError as error:
            raise _unavailable("read", path, error) from error
        try:
            size_bytes = os.fstat(descriptor).st_size
            PROCESS.get.note(size_bytes)
            return _read(descriptor, size_bytes)
        except OSError as error:
            raise _unavailable("read", path, error) from error
        finally:
            os.close(descriptor)

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name, one after the other: a local disk gains nothing from threads for small files."""
        return [self.get(name) for name in names]

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` to `end` of the file, or None."""
        path = self._path(checked_object_name(name))
        check_time("read", path)
        PROCESS.get.note(max(0, end - start))
        try:
            with open(path, "rb", buffering=0, opener=_open_object) as file:
                file.seek(start)
                return _read(file.fileno(), max(0, min(end, os.fstat(file.fileno()).st_size) - start))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unavailable("read", path, error) from error

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Create the file if the name is free.

        Returns UNKNOWN only after a failure at or after the link that does not say whether it took place.

        Raises:
            StoreUnavailable: nothing was created: no space, no permission, a read-only or broken disk.
            ConfigurationError: the folder, new at this put, cannot link or fsync.
        """
        with self._watched(len(data)):
            outcome, folder = self._create(name, data)
            return outcome if outcome is not PutOutcome.CREATED else self._made_durable(folder)

    def put_each_if_absent(self, objects: Sequence[tuple[str, bytes]]) -> list[PutOutcome]:
        """Do `put_if_absent` of each. With fsync, all names that are new in a folder become durable by one fsync.

        Raises:
            StoreUnavailable, ConfigurationError: as `put_if_absent`; those before may have been created.
        """
        with self._watched(max((len(data) for _, data in objects), default=0)):
            made = [self._create(name, data) for name, data in objects]
            new = dict.fromkeys(folder for outcome, folder in made if outcome is PutOutcome.CREATED)
            durable = {folder: self._made_durable(folder) for folder in new}
            return [outcome if outcome is not PutOutcome.CREATED else durable[folder] for outcome, folder in made]

    def put(self, name: str, data: bytes) -> None:
        """Write the file, over an older one; readers see the old or the new one whole. A power cut may take it."""
        path = self._path(checked_object_name(name))
        check_time("write", path)
        PROCESS.put.note(len(data))
        with self._watched(len(data)):
            _, temporary = self._write_temporary(path, checked_data(name, data), durable=False)
            try:
                os.replace(temporary, path)
            except OSError as error:
                _unlink(temporary)
                raise _unavailable("write", path, error) from error

    def list_names(self, folder: str, after: str = "") -> list[str]:
        """List the names of the objects directly in `folder` that sort after `after`."""
        path = self._base + checked_prefix(folder)
        check_time("list", path)
        PROCESS.list.note()
        try:
            if after:
                self._path(folder)
                last = after.removeprefix(folder)
                names = [name for name in os.listdir(path) if name > last and name[0] != "."]
                return [
                    folder + name for name in names if os.path.isfile(path + name) and not os.path.islink(path + name)
                ]
            with os.scandir(path) as found:
                self._path(folder)
                return [
                    folder + item.name for item in found if item.name[0] != "." and item.is_file(follow_symlinks=False)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unavailable("list", path, error) from error

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return all objects whose name starts with `prefix`, by name."""
        top = checked_prefix(prefix)[: prefix.rfind("/") + 1]
        check_time("list", self._base + prefix)
        PROCESS.list.note()
        return sorted(info for info in self._walk(top, prefix, after) if info.name.startswith(prefix))

    def delete(self, names: Iterable[str]) -> None:
        """Delete the files; their folders stay."""
        for path in [self._path(checked_object_name(name)) for name in names]:
            check_time("delete", path)
            PROCESS.delete.note()
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _unavailable("delete", path, error) from error

    def remove_folders(self, folders: Iterable[str]) -> None:
        """Remove empty folders; others stay."""
        for folder in folders:
            with suppress(OSError):
                os.rmdir(self._path(checked_prefix(folder)))

    def temporary_files(self) -> Mapping[str, int]:
        """Return hidden files that `_write_temporary` or `_prove_folder` has made, and when they were written."""
        found: dict[str, int] = {}
        for folder, _, files in os.walk(self._base):
            hidden = [file for file in files if file[0] == "." and _TEMPORARY.fullmatch(file)]
            for file in hidden:
                path = os.path.join(folder, file)
                if (modified_ms := _modified_ms(path)) < math.inf:  # else its writer has linked or removed it meanwhile
                    found[path[len(self._base) :]] = int(modified_ms)
        return found

    def remove_temporary(self, files: Iterable[str]) -> None:
        """Remove them."""
        for file in files:
            if _TEMPORARY.fullmatch(os.path.basename(file)) and ".." not in file.split("/"):
                _unlink(self._base + file)

    def make_durable(self, name: str) -> None:
        """Wait until the file and its name are on the disk; nothing without fsync."""
        path = self._path(checked_object_name(name))
        if not self._fsync:
            return
        folder = path[: path.rfind("/")]
        DISK.check(folder)
        try:
            DISK.fsync(path, folder)
            self._prepare_folder(folder)
            DISK.fsync(folder, folder)
        except OSError as error:
            raise _unavailable("fsync", path, error) from error

    def why_full(self) -> str | None:
        """Return whether the disk is full or read-only, without writing; None also where it does not say."""
        try:
            disk = os.statvfs(self._base)
        except (OSError, AttributeError):  # no such folder yet, or no such call
            return None
        if disk.f_flag & getattr(os, "ST_RDONLY", 0):
            return f"the file system of {self._base!r} is read-only"
        if disk.f_files and not disk.f_favail:
            return f"the file system of {self._base!r} has no room for another file"
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes < _ROOM_BYTES_MIN:
            return f"the file system of {self._base!r} is full: {free_bytes} bytes are free"
        return None

    def contention_lock(self, while_waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Order the writers of this machine, threads and processes alike."""
        return self._lock.hold(while_waiting)

    def close(self) -> None:
        """Close the lock file."""
        self._lock.close()

    def _path(self, name: str) -> str:
        """Return the file of an object, or the folder that a prefix is in.

        Raises:
            ConfigurationError: a symbolic link leads its folder out of the store.
        """
        folder = name[: name.rfind("/") + 1]
        if folder not in self._inside:
            self._check_inside(folder)
        return self._base + name

    def _check_inside(self, folder: str) -> None:
        root = os.path.realpath(self._base).rstrip("/") + "/"
        found = os.path.realpath(self._base + folder)
        if not f"{found}/".startswith(root):
            raise ConfigurationError(
                f"the folder {self._base + folder!r} leads to {found!r}, out of the store: remove the symbolic link "
                "(the store's root itself may be one)"
            )
        if os.path.isdir(found):
            self._inside.add(folder)

    def _create(self, name: str, data: bytes) -> tuple[PutOutcome, str]:
        """Do `put_if_absent`, but with fsync a new name is not durable yet; return the folder that it is in, too."""
        path = self._path(checked_object_name(name))
        check_time("create", path)
        PROCESS.put.note(len(data))
        if self._fsync:
            DISK.check(path[: path.rfind("/")])
        folder, temporary = self._write_temporary(path, checked_data(name, data), durable=self._fsync)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return PutOutcome.EXISTS, folder
        except OSError as error:
            if error.errno in _REFUSED:
                raise _unavailable("create", path, error) from error
            self.writes.failed(f"cannot create {path!r}: {error.strerror or error}", len(data))
            return PutOutcome.UNKNOWN, folder
        finally:
            _unlink(temporary)
        return PutOutcome.CREATED, folder

    def _made_durable(self, folder: str) -> PutOutcome:
        """Return CREATED once the new names in `folder` are durable, where fsync is on; UNKNOWN if that failed."""
        if self._fsync:
            try:
                DISK.fsync(folder, folder)
            except OSError as error:
                self.writes.failed(f"cannot fsync {folder!r}: {error.strerror or error}", 1)
                return PutOutcome.UNKNOWN
        return PutOutcome.CREATED

    @contextmanager
    def _watched(self, size_bytes: int) -> Iterator[None]:
        """Note whether the body has written an object of so many bytes."""
        before = self.writes.failure
        try:
            yield
        except StoreUnavailable as error:
            self.writes.raised(error, size_bytes)
            raise
        if self.writes.failure is before:
            self.writes.succeeded(size_bytes)

    def _write_temporary(self, path: str, data: bytes, *, durable: bool) -> tuple[str, str]:
        """Write `data` to a hidden file next to `path`, on the disk if it is to be `durable`; return (folder, file).

        Raises:
            StoreUnavailable: it could not; nothing is left behind.
        """
        folder = path[: path.rfind("/")]
        temporary = f"{folder}/{self._temporary}{next(self._counter)}"
        descriptor = -1
        try:
            if folder not in self._ready_folders:
                self._prepare_folder(folder)
            try:
                descriptor = os.open(temporary, _CREATE, 0o666)
            except FileNotFoundError:  # another process has removed the folder since we made it
                self._prepare_folder(folder)
                descriptor = os.open(temporary, _CREATE, 0o666)
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
            if durable:
                os.fsync(descriptor)
        except OSError as error:
            _unlink(temporary)
            raise _unavailable("write", path, error) from error
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return folder, temporary

    def _prepare_folder(self, folder: str) -> None:
        """Make the folder and those above it; with fsync also their names durable, whichever process has made them."""
        root = self._base[:-1]
        above = []
        path = folder
        while len(path) > len(root) or (path and not os.path.isdir(path)):
            above.append(os.path.dirname(path))
            path = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        if self._fsync:
            for parent in above:
                DISK.fsync(parent or "/", parent or "/")
        if not self._proven:
            self._prove_folder()
        self._ready_folders.add(folder)

    def _prove_folder(self) -> None:
        """Try what correctness rests on: a link that refuses a name that is taken, and fsync of file and folder."""
        first, second = (f"{self._base}{self._temporary}{next(self._counter)}" for _ in range(2))
        step = _FIRST_STEP
        try:
            descriptor = os.open(first, _CREATE, 0o666)
            try:
                if self._fsync:
                    step = "fsync a file"
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            step = "link a file"
            os.link(first, second)
            if self._fsync:
                step = "fsync a folder"
                DISK.fsync(self._base, self._base[:-1] or "/")
            step = "refuse a link to a name that is taken"
            try:
                os.link(first, second)
                raise OSError("the second link did not fail")
            except FileExistsError:
                self._proven = True
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise _unavailable("write", self._base, error) from error
            # A file system without hard links refuses them with EPERM too.
            if step == _FIRST_STEP and error.errno in _PERMISSION:
                raise _forbidden(self.uri, error) from None
            raise _unsuitable(self.uri, step, error) from error
        finally:
            _unlink(first)
            _unlink(second)

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield the objects in and below `folder` after `after`; skip folders that hold none with `prefix`."""
        below = []
        path = self._base + folder
        try:
            with os.scandir(path) as found:
                for item in found:
                    name = folder + item.name
                    if item.is_symlink():
                        continue
                    if item.is_dir():
                        if name.startswith(prefix) or prefix.startswith(name):
                            below.append(name + "/")
                    elif name > after and item.name[0] != "." and name.startswith(prefix):
                        yield from _info(name, item)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _unavailable("list", path, error) from error
        for name in below:
            yield from self._walk(name, prefix, after)


class _ContentionLock:
    """An flock for other processes and a lock for threads of this one, held together.

    No process waits without end: a holder that is paused must not stop the others, since the lock only saves lost puts.
    A writer that has waited too long continues without it, until the lock can be had again.
    """

    _WAIT_MAX_S: Final = 1.0
    _PAUSE_S: Final = 0.0003
    _PAUSE_S_MAX: Final = 0.0015

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._threads = threading.Lock()
        self._descriptor: int | None = None
        self._closing: weakref.finalize[[int], _ContentionLock] | None = None
        self._holder_is_paused = False

    @contextmanager
    def hold(self, while_waiting: Callable[[], None] | None) -> Iterator[None]:
        """Hold the lock, or go on without it once waiting makes no sense."""
        if not acquired_in_time(self._threads, self._WAIT_MAX_S):
            yield
            return
        held = False
        try:
            if _HAS_FLOCK:
                held = self._acquire(while_waiting)
            yield
        finally:
            if held and self._descriptor is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._threads.release()

    def _acquire(self, while_waiting: Callable[[], None] | None) -> bool:
        if self._try():
            self._holder_is_paused = False
            return True
        if self._holder_is_paused:
            return False
        wait_s = time_left_s(self._WAIT_MAX_S) or 0.0
        gives_up_s = self._clock.monotonic_s() + wait_s
        pause_s = self._PAUSE_S
        # A blocking flock has no time limit and wakes late on a busy machine: asking again costs less.
        while self._clock.monotonic_s() < gives_up_s:
            if while_waiting is not None:
                while_waiting()
            self._clock.sleep(pause_s)
            if self._try():
                return True
            pause_s = min(2 * pause_s, self._PAUSE_S_MAX)
        self._holder_is_paused = wait_s >= self._WAIT_MAX_S
        return False

    def _try(self) -> bool:
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
                # A handle that was never closed must not keep its descriptor for the rest of the process.
                self._closing = weakref.finalize(self, os.close, self._descriptor)
                self._closing.atexit = False  # threads still work when the exit of the interpreter begins
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without flock, or a folder that does not exist yet: do not wait
            self._holder_is_paused = True
            return False
        return True

    def close(self) -> None:
        """Close the lock file, unless another thread keeps the lock until the deadline."""
        if not acquired_in_time(self._threads, self._WAIT_MAX_S):
            return
        try:
            self._descriptor = None
            if self._closing is not None:
                self._closing()
        finally:
            self._threads.release()


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    parts = [data]
    while parts[-1]:
        parts.append(os.read(descriptor, size - sum(map(len, parts))))
    return b"".join(parts)


def _open_object(path: str, flags: int) -> int:
    return os.open(path, flags | _READ_OBJECT)


def _unlink(path: str) -> None:
    """Remove a hidden file; one that stays does no harm."""
    with suppress(OSError):
        os.unlink(path)


def _info(name: str, item: os.DirEntry[str]) -> Iterator[ObjectInfo]:
    try:
        status = item.stat()
    except FileNotFoundError:  # deleted since the folder was read
        return
    yield ObjectInfo(name, status.st_size, status.st_mtime_ns // 1_000_000)


def _modified_ms(path: str) -> float:
    """Return when the file was written; never, if it is gone."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except OSError:
        return math.inf


_FIRST_STEP: Final = "create a file"
_PERMISSION: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT}


def _unavailable(verb: str, path: str, error: OSError) -> StoreUnavailable:
    transient = error.errno not in NEEDS_A_HAND
    return StoreUnavailable(f"cannot {verb} {path!r}: {error.strerror or error}", transient=transient)


def _forbidden(root: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"no permission to write to the store {root!r} ({error.strerror}): give this process's user the permission to "
        "create files there; reading needs none"
    )


def _unsuitable(root: str, step: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"the folder {root!r} cannot hold a store: its file system does not {step} ({error.strerror or error}), and "
        "commits rest on hard links and fsync. Use a local disk of Linux or macOS, or an object store such as s3://"
    )
