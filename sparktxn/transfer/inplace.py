"""Importing Parquet files as they are: their bytes become segments, and no record is written anew.

All files are checked, each record of them, before anything is written. Then some at a time become objects of the store,
and one entry names these, each file as a transaction of its own. A process that dies leaves objects that nothing names.
The next call leaves out the files that an entry has named.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from sparktxn import arguments
from sparktxn.clock import Deadline, in_time
from sparktxn.config.topic import topic_setting
from sparktxn.errors import CommandRefused, ConfigurationError, DamagedObject, ErrorCode
from sparktxn.format import names
from sparktxn.format.commands import Command, InitProducerId, SinkBatchCommit
from sparktxn.format.segment import checksum
from sparktxn.internaltopics import refuse_change
from sparktxn.objectstore import ForeignFile, TakingStore
from sparktxn.objectstore.foreign import list_files, read_file
from sparktxn.objectstore.putting import put_until_stored
from sparktxn.stage.pendingcommits import prescriptive
from sparktxn.stage.staged import StagedSegment
from sparktxn.stage.transaction import TransactionIdentity
from sparktxn.store import Store
from sparktxn.structs import NO_TRANSACTION, ProducerIdAndEpoch, TopicState, TransactionState
from sparktxn.transfer.fileidentity import BATCH, FileIdentity, imported_by, name_of, partition_of
from sparktxn.transfer.fileimport import OnProgress
from sparktxn.transfer.fitting import Fit, fit

__all__ = ["InPlaceFile", "InPlaceReport", "import_in_place"]

_PARQUET: Final = ".parquet"
_TIME_OF_ENTRY: Final = -1
_NOT_COUNTED: Final = -1
_ATTEMPTS: Final = 8
_FILES_MAX: Final = 10_000
_SUPERSEDED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)
"""How the state refuses files that another process imports at the same time."""


class InPlaceFile(Struct, frozen=True, kw_only=True):
    """What became of a file: entry `entry` committed its records to `partition`; `existing` if before this call.

    `taken` says how its bytes came into the store: "linked", "copied by the store" or "copied". It and `entry` are None
    in a dry run and for a file without records. `records` is None where the file was imported before.
    """

    file: str
    size_bytes: int
    existing: bool
    partition: int | None = None
    records: int | None = None
    taken: str | None = None
    entry: int | None = None


class InPlaceReport(Struct, frozen=True, kw_only=True):
    """What was imported into `topic`, or with `dry_run` would be, in the order of the files."""

    dry_run: bool
    topic: str
    files: tuple[InPlaceFile, ...]


class _Checked(Struct, frozen=True):
    """A file that fits, as it was read; the others lack `fit`."""

    address: str
    version: str
    identity: FileIdentity
    checksum: str
    partition: int
    fit: Fit | None
    existing: int | None


@in_time("timeout_s", lambda store: store.log.clock)
def import_in_place(
    store: Store,
    topic: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    partition: int | None = None,
    link: bool = False,
    files_per_entry: int = 100,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    timeout_s: float | None = None,
) -> InPlaceReport:
    """Append Parquet files to a topic as they are: each becomes a segment, in a transaction of its own.

    All files are checked before anything is written. A file takes effect once, as in `import_files`, whichever of the
    two has imported it.

    Args:
        store: an open store.
        topic: the topic. A file has its columns, with their types; columns that may be null may be missing. Without a
            column of timestamps all records of a file get the time of the entry that commits them.
        files: paths, or addresses on the server of a store on S3 (``s3://bucket/name``). An address that ends with
            ``/``, or a folder, is all Parquet files below it; those in folders that begin with ``_`` or ``.`` are not.
        partition: where the records go. None: where the folder ``partition=<n>`` of a file says. Without such a folder
            a typed topic without ``partition.key`` takes files anywhere, and others must have one partition.
        link: files of the store's disk are linked, not copied. Nothing may write to such a file from then on: it is a
            part of the store. One that cannot be linked is copied.
        files_per_entry: how many files become visible at once.
        dry_run: only check the files.
        on_progress: called after each file with its name and its records.
        timeout_s: how long all of it may take.

    Raises:
        ConfigurationError: an argument is wrong, a file does not exist, does not fit or has changed while it was read.
        CommandRefused: the topic does not exist.
        SegmentExpired: a vacuum has passed objects before an entry could name them: call again.
        StoreUnavailable, OutcomeUnknown: call again: a file takes effect once.
        OSError: a file cannot be read.
    """
    arguments.instance("store", store, Store)
    topic = arguments.identifier("topic", topic)
    addresses = _addresses(files)
    partition = arguments.integer_or_none("partition", partition, 0)
    link = arguments.boolean("link", link)
    files_per_entry = arguments.integer("files_per_entry", files_per_entry, 1, _FILES_MAX)
    dry_run = arguments.boolean("dry_run", dry_run)
    arguments.function("on_progress", on_progress)
    deadline = store.log.deadline(arguments.timeout_s("timeout_s", timeout_s))
    refuse_change(topic)
    known = store.view([topic]).topics[topic]
    importing = _Importing(store, known, partition, deadline, link=link)
    checked = [importing.checked(address, on_progress) for address in importing.found(addresses)]
    _refuse_repeated(checked)
    done = {one.address: _outcome(one) for one in checked}
    new = [one for one in checked if one.existing is None and one.fit is not None]
    if not dry_run:
        for first in range(0, len(new), files_per_entry):
            done |= importing.imported(new[first : first + files_per_entry])
    return InPlaceReport(dry_run=dry_run, topic=topic, files=tuple(done.values()))


def _addresses(files: object) -> list[str]:
    if isinstance(files, str | bytes | os.PathLike) or not isinstance(files, Sequence):
        raise TypeError(f"files is {arguments.described(files)}: expected a list of paths")
    return [arguments.path("files", file) for file in files]


def _refuse_repeated(checked: Sequence[_Checked]) -> None:
    """Refuse two files that are the same one: only one of them would take effect."""
    seen: dict[FileIdentity, str] = {}
    for one in checked:
        if one.identity in seen:
            raise ConfigurationError(
                f"files {seen[one.identity]!r} and {one.address!r} have one name and one content, and a file takes "
                "effect once: leave one out, or give it another name"
            )
        seen[one.identity] = one.address


def _outcome(one: _Checked, taken: str | None = None, entry: int | None = None) -> InPlaceFile:
    existing = one.existing is not None
    records = 0 if one.fit is None else one.fit.record_count
    return InPlaceFile(
        file=one.address,
        size_bytes=one.identity.size_bytes,
        existing=existing,
        partition=None if existing else one.partition,
        records=None if existing else records,
        taken=taken,
        entry=one.existing if existing else entry,
    )


class _Importing:
    """Imports files into one topic."""

    def __init__(
        self, store: Store, topic: TopicState, partition: int | None, deadline: Deadline, *, link: bool
    ) -> None:
        self._store = store
        self._log = store.log
        self._objects = store.log.objects
        self._topic = topic
        self._partition = partition
        self._deadline = deadline
        self._link = link
        if partition is not None and partition >= topic.partition_count:
            raise self._no_partition("partition is", partition)

    # what to import

    def found(self, addresses: Sequence[str]) -> Iterator[str]:
        """Yield the addresses of single files."""
        for address in addresses:
            if "://" in address:
                address = f"s3://{address.removeprefix('s3a://')}" if address.startswith("s3a://") else address
                store = self._taking(address)
                below = store.list_foreign(address) if address.endswith("/") else None
            else:
                below = list_files(address) if os.path.isdir(address) else None
            yield from [address] if below is None else _parquet_files(address, below)

    def _taking(self, address: str) -> TakingStore:
        objects = self._objects
        scheme = objects.foreign_scheme if isinstance(objects, TakingStore) else ""
        if not (isinstance(objects, TakingStore) and scheme and address.startswith(scheme)):
            raise ConfigurationError(
                f"file {address!r} is not on the server of the store {self._store.uri!r}: expected a path"
                f"{f', or an address that begins with {scheme}' if scheme else ''}; download the file first"
            )
        return objects

    def _read(self, address: str) -> ForeignFile:
        found = self._taking(address).read_foreign(address) if "://" in address else read_file(address)
        if found is None:
            raise ConfigurationError(f"file {address!r} does not exist: expected a Parquet file")
        return found

    def checked(self, address: str, on_progress: OnProgress | None) -> _Checked:
        """Read a file and check that it fits.

        Raises:
            ConfigurationError: it does not, or has no partition to go to.
        """
        file = self._read(address)
        path = PurePosixPath(address) if "://" in address else Path(address).absolute()
        identity = FileIdentity(name_of(path), len(file.data), hashlib.sha256(file.data).hexdigest())
        existing = self._imported(identity)
        partition = self._chosen(address, path, identity)
        fits = None if existing is not None else fit(address, file.data, self._topic, _columns_in(path))
        if on_progress is not None:
            on_progress(address, 0 if fits is None else fits.record_count)
        return _Checked(address, file.version, identity, checksum(file.data), partition, fits, existing)

    def _imported(self, identity: FileIdentity) -> int | None:
        return imported_by(self._store, identity.transactional_id(self._topic))

    def _chosen(self, address: str, path: PurePosixPath | Path, identity: FileIdentity) -> int:
        """Return the partition of a file."""
        topic = self._topic
        folder = partition_of(path)
        if self._partition is not None:
            return self._partition
        if folder is not None:
            if folder >= topic.partition_count:
                raise self._no_partition(f"the folder of file {address!r} says partition", folder)
            return folder
        if topic.partition_count > 1 and (topic.schema is None or topic_setting(topic.settings, "partition.key")):
            raise ConfigurationError(
                f"file {address!r} has no partition: keys choose those of topic {topic.name!r}, and a file goes to one "
                "as a whole. Give partition (--partition), put it into a folder partition=<n>, or import it without "
                "in_place (--in-place)"
            )
        # The same one each time that the file is imported.
        return int(identity.digest[:8], 16) % topic.partition_count

    def _no_partition(self, says: str, found: int) -> ConfigurationError:
        topic = self._topic
        return ConfigurationError(
            f"{says} {found}, and topic {topic.name!r} has {topic.partition_count}: expected 0 to "
            f"{topic.partition_count - 1}"
        )

    # into the store

    def imported(self, files: Sequence[_Checked]) -> dict[str, InPlaceFile]:
        """Make files objects of the store, and commit them with one entry."""
        born = self._log.born(self._deadline)
        staged, taken = {}, {}
        for one in files:
            staged[one.address], taken[one.address] = self._taken(one, born)
        entries = self._commit(files, staged)
        done = {}
        for one in files:
            entry, is_own = entries[one.address]
            outcome = _outcome(one, taken[one.address], entry)
            if not is_own:
                outcome = InPlaceFile(file=one.address, size_bytes=one.identity.size_bytes, existing=True, entry=entry)
            done[one.address] = outcome
        return done

    def _taken(self, one: _Checked, born: int) -> tuple[StagedSegment, str]:
        """Make a file an object of the store; return it, and how its bytes came there.

        Raises:
            ConfigurationError: the file has changed since it was checked.
        """
        assert one.fit is not None
        token = self._log.ids.token()
        timestamps_ms = one.fit.timestamps_ms
        undated = timestamps_ms is None
        file = names.undated_segment_file(born, token) if undated else names.segment_file(born, token, "parquet")
        name = names.segment(self._topic.name, self._topic.topic_id, one.partition, file)
        if timestamps_ms is None or topic_setting(self._topic.settings, "message.timestamp.type") == "LogAppendTime":
            timestamps_ms = (_TIME_OF_ENTRY, _TIME_OF_ENTRY)
        segment = StagedSegment(
            topic=self._topic.name,
            topic_id=self._topic.topic_id,
            partition=one.partition,
            segment=file,
            record_count=one.fit.record_count,
            size_bytes=one.identity.size_bytes,
            checksum=one.checksum,
            timestamp_min_ms=timestamps_ms[0],
            timestamp_max_ms=timestamps_ms[1],
            payload_bytes=_NOT_COUNTED,
        )
        return segment, self._stored(one, name)

    def _stored(self, one: _Checked, name: str) -> str:
        remote = "://" in one.address
        objects = self._objects
        taken = self._taking(one.address).take(name, one.address, one.version) if remote else None
        if taken is not None:
            if taken != one.version:
                self._check_digest(one, objects.get(name) or b"")
            return "copied by the store"
        disk = objects if isinstance(objects, TakingStore) and not objects.foreign_scheme else None
        if self._link and not remote and disk and disk.take(name, one.address, one.version):
            return "linked"
        data = self._read(one.address).data
        self._check_digest(one, data)
        if put_until_stored(objects, name, data, self._log.clock) != data:
            raise DamagedObject(name, "it holds other bytes than were put under this unique name")
        return "copied"

    def _check_digest(self, one: _Checked, data: bytes) -> None:
        if hashlib.sha256(data).hexdigest() != one.identity.digest:
            raise ConfigurationError(f"file {one.address!r} has changed since it was read: nothing of it was imported")

    def _commit(self, files: Sequence[_Checked], staged: dict[str, StagedSegment]) -> dict[str, tuple[int, bool]]:
        """Commit files that are in the store; return the entry of each, and whether it is this call's.

        The state takes no file twice: neither a list that a process has sent and given up, nor another process's.
        """
        done: dict[str, tuple[int, bool]] = {}
        for attempt in range(_ATTEMPTS):
            self._log.refresh(self._deadline)
            found = {one.address: self._imported(one.identity) for one in files}
            done = {address: (entry, False) for address, entry in found.items() if entry is not None}
            left = [one for one in files if found[one.address] is None]
            if not left:
                return done
            try:
                self._send(left, staged)
            except CommandRefused as refused:
                if refused.error.code() not in _SUPERSEDED or attempt + 1 == _ATTEMPTS:
                    raise prescriptive(refused) from None
                continue
            return done | {one.address: (self._imported(one.identity) or self._log.entry, True) for one in left}
        return done

    def _send(self, files: Sequence[_Checked], staged: dict[str, StagedSegment]) -> None:
        """Send one list with a transaction for each file, all or nothing; the ids are initialised by a list before.

        Raises:
            CommandRefused: nothing was committed.
        """
        ids = [one.identity.transactional_id(self._topic) for one in files]
        self._log.submit([InitProducerId(self._log.ids.token(), each) for each in ids], self._deadline)
        commands: list[Command] = []
        for one, transactional_id in zip(files, ids, strict=True):
            state = self._log.transaction(transactional_id)
            if state is None:
                raise CommandRefused(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id!r} expired at once"
                )
            commands += _transaction(one, staged[one.address], state)
        self._log.submit(commands, self._deadline)


def _transaction(one: _Checked, staged: StagedSegment, state: TransactionState) -> list[Command]:
    """Return the commands that commit a file under the current epoch of its transactional id."""
    identity = TransactionIdentity(
        state.transactional_id, state.producer_id, state.producer_epoch, max(state.transaction, NO_TRANSACTION) + 1
    )
    batch = SinkBatchCommit(
        *identity.names(),
        writer_id=one.identity.writer_id,
        run_id="",
        batch_id=BATCH,
        fingerprint=one.identity.digest[:32],
    )
    append = staged.append(
        ProducerIdAndEpoch(state.producer_id, state.producer_epoch),
        0,
        transactional_id=state.transactional_id,
        transaction=identity.transaction,
    )
    return [batch, append, identity.end(committed=True)]


def _parquet_files(folder: str, found: Sequence[str]) -> list[str]:
    """Return the data files among those below a folder, as Spark and Hive see them."""
    below = [(address, address[len(folder) :].lstrip("/").split("/")) for address in found]
    return [
        address
        for address, parts in below
        if address.lower().endswith(_PARQUET) and not any(part.startswith(("_", ".")) for part in parts)
    ]


def _columns_in(path: PurePosixPath | Path) -> tuple[str, ...]:
    """Return the columns that the names of a file's folders hold, as Hive writes them."""
    return tuple(part.partition("=")[0] for part in path.parent.parts if "=" in part)
