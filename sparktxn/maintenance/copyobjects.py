"""Copying single objects from one root to another: tasks that any process can do.

Each object is checked before it is put: the bytes that arrive are those that the log, or the object itself, names. One
that exists in the target is read back and checked alike, or found by its size if an earlier copy has checked it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import digest
from sparktxn._engine.format.entry import decode_entry, open_document
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.format.snapshot import decode_snapshot
from sparktxn._engine.format.txnindex import decode_transaction_index
from sparktxn._engine.log.follow.inlinerecords import carried_records
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._foundation.process.clock import Clock, SystemClock
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.quantities import counted
from sparktxn.errors import DamagedObject, FormatVersionError
from sparktxn.store.registry import objects_of

CRC32C: Final = "crc32c"
SHA256: Final = "sha256"
SEALED: Final = "sealed"
INDEX: Final = "index"
INLINE: Final = "inline records"
SNAPSHOT: Final = "snapshot"
MARKER: Final = "marker"
UNKNOWN_SIZE: Final = -1

_TASK_BYTES: Final = 128 * 1024 * 1024
_TASK_OBJECTS: Final = 1_000


class ObjectToCopy(Struct, frozen=True):
    """An object, and what shows that its bytes are the right ones.

    `proof` says what `expected` is: its CRC-32C, its SHA-256, the checksum that a sealed document ends with, or the
    number of transactions of an index. For an entry with inline records it may be what `inline_proof` returns. A
    snapshot of producers has a checksum of its own. `size_bytes` is -1 where it is not known. `entry` is one that
    names it.
    """

    name: str
    size_bytes: int
    proof: str
    expected: str
    entry: int


class CopyTask(Struct, frozen=True):
    """Some objects to copy, and `existing` ones to read back; picklable."""

    source_uri: str
    target_uri: str
    objects: tuple[ObjectToCopy, ...]
    existing: tuple[ObjectToCopy, ...] = ()


class CopiedObjects(Struct, frozen=True):
    """What a task has done. `damaged` is the first object that is not as it must be, with the reason; None: none."""

    objects: int
    size_bytes: int
    existing: int
    damaged: tuple[str, str] | None = None


def tasks_of(
    source_uri: str, target_uri: str, objects: Iterable[ObjectToCopy], exists: Callable[[str], bool], objects_max: int
) -> Iterator[CopyTask]:
    """Yield tasks that copy `objects`, of about one size and at most `objects_max` each; `exists` says what exists."""
    some: list[ObjectToCopy] = []
    size_bytes = 0
    limit = min(objects_max, _TASK_OBJECTS)
    for each in objects:
        if some and (size_bytes + max(0, each.size_bytes) > _TASK_BYTES or len(some) >= limit):
            yield _task(source_uri, target_uri, some, exists)
            some, size_bytes = [], 0
        some.append(each)
        size_bytes += max(0, each.size_bytes)
    if some:
        yield _task(source_uri, target_uri, some, exists)


def _task(source_uri: str, target_uri: str, some: list[ObjectToCopy], exists: Callable[[str], bool]) -> CopyTask:
    missing = tuple(each for each in some if not exists(each.name))
    return CopyTask(source_uri, target_uri, missing, tuple(each for each in some if exists(each.name)))


def run_copy_task(
    task: CopyTask,
    source_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> CopiedObjects:
    """Do a task of a copy, in any process that can reach both roots; its result is for `copy_store`.

    Objects of a process that dies are whole or not there: the next copy finds them.

    Raises:
        StoreUnavailable: one of the stores did not answer.
    """
    arguments.instance("task", task, CopyTask)
    source = objects_of(task.source_uri, arguments.mapping("source_options", source_options))
    target = objects_of(task.target_uri, arguments.mapping("target_options", target_options))
    return copy_objects(source, target, SystemClock(), task)


def copy_objects(source: ObjectStore, target: ObjectStore, clock: Clock, task: CopyTask) -> CopiedObjects:
    """Do a task with open object stores; errors are those of `run_copy_task`."""
    size_bytes = 0
    for done, each in enumerate(task.objects):
        data = source.get(each.name)
        if data is None:
            reason = f"entry {each.entry} names it, or its checkpoint, and it does not exist in {source.uri!r}"
            return CopiedObjects(done, size_bytes, 0, (each.name, reason))
        if reason := problem_of(data, each):
            return CopiedObjects(done, size_bytes, 0, (each.name, f"in {source.uri!r} {reason}"))
        if put_until_stored(target, each.name, data, clock) != data:
            reason = f"in the copy {target.uri!r} it holds other bytes than in {source.uri!r}"
            return CopiedObjects(done, size_bytes, 0, (each.name, reason))
        size_bytes += len(data)
    for done, each in enumerate(task.existing):
        data = target.get(each.name)
        reason = "it does not exist any more" if data is None else problem_of(data, each)
        if reason:
            reason = f"in the copy {target.uri!r} {reason}: delete it there, and copy again"
            return CopiedObjects(len(task.objects), size_bytes, done, (each.name, reason))
    return CopiedObjects(len(task.objects), size_bytes, len(task.existing))


def problem_of(data: bytes, each: ObjectToCopy) -> str:
    """Return what is wrong with an object's bytes; "" if nothing is."""
    if 0 <= each.size_bytes != len(data):
        return f"it has {counted(len(data), 'byte')}, expected {each.size_bytes}"
    try:
        found = _proof(data, each)
    except (DamagedObject, FormatVersionError) as damaged:
        return damaged.reason
    return "" if found == each.expected else f"its {each.proof} is {found}, expected {each.expected}"


def inline_proof(carried: Mapping[str, str]) -> str:
    """Return what shows that an entry carries inline records: their checksums by the names of their segments."""
    return ",".join(f"{segment}={carried[segment]}" for segment in sorted(carried))


def _inline_found(data: bytes, each: ObjectToCopy) -> str:
    number = names.parse_entry(each.name)
    entry = decode_entry(data, each.name, -1 if number is None else number)
    wanted = {part.partition("=")[0] for part in each.expected.split(",")}
    carried = carried_records(entry.commands, entry.entry)
    return inline_proof({segment: checksum(carried[segment]) for segment in wanted & carried.keys()})


def _proof(data: bytes, each: ObjectToCopy) -> str:
    if each.proof == CRC32C:
        return checksum(data)
    if each.proof == SHA256:
        return digest(data)
    if each.proof == SEALED:
        open_document(data, each.name)
        return data[-10:-2].decode("ascii")
    if each.proof == INLINE:
        return _inline_found(data, each)
    if each.proof == INDEX:
        return str(len(decode_transaction_index(data, each.name)))
    if each.proof == SNAPSHOT:
        decode_snapshot(data, each.name)
    # A marker that cannot be decoded means something, too: it names every checkpoint.
    return each.expected
