"""The root that a copy is made in: its documents, what it may hold, and what is put into it (PROTOCOL.md, "Copies")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from sparktxn.errors import ConfigurationError, DamagedObject
from sparktxn.format import names
from sparktxn.format.checkpoint import CheckpointHead, CheckpointHint, encode_hint
from sparktxn.format.copies import CopyDocument, encode_copy
from sparktxn.format.entry import StoreDocument, decode_store, encode_store
from sparktxn.log.follow.newestcopy import newest_copy
from sparktxn.log.log import Log
from sparktxn.maintenance.copying.copywork import Work
from sparktxn.maintenance.copyobjects import CopyTask, ObjectToCopy, copy_objects, tasks_of
from sparktxn.maintenance.overtaken import Overtaken
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.objectstore.putting import put_until_stored, replace_hint
from sparktxn.values.counted import counted

__all__ = ["FOLDERS", "CopyReport", "CopyTarget", "OnBytes", "OnProgress", "check_apart"]

FOLDERS: Final = (names.LOG, names.TOPICS)
"""The folders of a root that a copy is about."""

OnBytes = Callable[[int], object]
"""Gets how many bytes have been copied."""

OnProgress = Callable[[int, int], None]
"""Gets how many objects of how many are done."""


class CopyReport(Struct, frozen=True, kw_only=True):
    """What a copy has done, or with `dry_run` would do.

    The copy at `target`, a store with the id `store_id`, reads as the source did from entry `horizon` to `entry`.
    `objects` with `size_bytes` were copied. `existing` ones were found in the target. `is_complete` is False for a dry
    run alone.
    """

    dry_run: bool
    target: str
    store_id: str = ""
    horizon: int = 1
    entry: int = 0
    objects: int = 0
    size_bytes: int = 0
    existing: int = 0
    is_complete: bool = False


def check_apart(source: str, target: str) -> None:
    """Check that two roots have no object in common.

    Raises:
        ConfigurationError: they have.
    """
    here, there = f"{source.rstrip('/')}/", f"{target.rstrip('/')}/"
    if here.startswith(there) or there.startswith(here):
        raise ConfigurationError(
            f"the target {target!r} is the store {source!r}, or one is inside the other: expected another root"
        )


class CopyTarget:
    """The target of one call, which counts what it has copied."""

    def __init__(
        self,
        log: Log,
        objects: ObjectStore,
        work: Work,
        on_progress: OnProgress | None,
        on_bytes: OnBytes | None = None,
    ) -> None:
        self._log = log
        self._source = log.objects
        self.objects = objects
        self._work = work
        self._on_progress = on_progress
        self._on_bytes = on_bytes
        self._copied = self._copied_bytes = self._existing = self._total = 0

    def found(self) -> tuple[StoreDocument | None, CopyDocument | None]:
        """Return the target's document, and the newest one of its copying.

        Raises:
            ConfigurationError: the target is another store, or an earlier version has copied some topics alone to it.
        """
        data = self.objects.get(names.STORE)
        if data is None:
            return None, None
        store = decode_store(data, names.STORE)
        self._check_is_copy(store)
        newest = newest_copy(self.objects)
        if newest is not None and newest.topics:
            raise ConfigurationError(
                f"the target {self.objects.uri!r} is a copy of {', '.join(map(repr, sorted(newest.topics)))} alone, "
                "which an earlier version has made: expected an empty root, or a copy of the whole store"
            )
        return store, newest

    def _check_is_copy(self, store: StoreDocument) -> None:
        if store.store_id == self._log.store_id:
            reason = f"is the store {self._source.uri!r} itself"
        elif not store.copied_from:
            reason = "is a store of its own"
        elif store.copied_from != self._log.store_id:
            reason = f"is a copy of the store with the id {store.copied_from}, not of {self._log.store_id}"
        else:
            return
        raise ConfigurationError(f"the target {self.objects.uri!r} {reason}: expected an empty root, or an older copy")

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the target's objects, by their names."""
        return {info.name: info.size_bytes for folder in FOLDERS for info in self.objects.list(folder)}

    def check_nothing_else(self, store: StoreDocument | None, sizes: Mapping[str, int], entry: int) -> None:
        """Check that the target has nothing but what an earlier call has copied of entries up to `entry`.

        Raises:
            ConfigurationError: it has.
        """
        if store is None and sizes:
            raise ConfigurationError(
                f"the target {self.objects.uri!r} holds {counted(len(sizes), 'object')} of a store, such as "
                f"{min(sizes)!r}, and "
                "no document of one: expected an empty root"
            )
        for name in sizes:
            head = names.parse_checkpoint_head(name)
            number = names.parse_entry(name) or (head[0] if head is not None else 0)
            if number > entry:
                raise ConfigurationError(
                    f"the unfinished copy {self.objects.uri!r} has {name!r}, and this copy of {self._source.uri!r} "
                    f"ends at entry {entry}: expected an empty root, or what this store was copied to"
                )

    def claimed(self) -> StoreDocument:
        """Put the store's document, which makes the root this copy's."""
        data = encode_store(self._log.ids.token(), self._log.clock.wall_ms(), self._log.store_id)
        found = put_until_stored(self.objects, names.STORE, data, self._log.clock)
        store = decode_store(found, names.STORE)
        self._check_is_copy(store)
        return store

    def written(
        self, before: CopyDocument | None, horizon: int, entry: int, entry_checksum: str, *, complete: bool
    ) -> CopyDocument:
        """Put the next document of the copying.

        Raises:
            Overtaken: another copy to this target has put it.
        """
        document = CopyDocument(
            copy=1 if before is None else before.copy + 1,
            token=self._log.ids.token(),
            horizon=horizon,
            entry=entry,
            entry_checksum=entry_checksum,
            complete=complete,
        )
        data = encode_copy(document)
        if put_until_stored(self.objects, names.copy(document.copy), data, self._log.clock) != data:
            raise Overtaken
        return document

    def copy(
        self, objects: Iterable[ObjectToCopy], sizes: Mapping[str, int], total: int, *, proven_entry: int = -1
    ) -> None:
        """Copy objects. Those that exist are read back, but those of entries up to `proven_entry`.

        Raises:
            DamagedObject: one is not what the log names.
        """
        self._total = total
        wanted = (each for each in objects if not self._is_proven(each, sizes, proven_entry))
        tasks = tasks_of(
            self._source.uri, self.objects.uri, wanted, sizes.__contains__, objects_max=self._work.objects_max
        )
        for done in self._work.done(self._source, self.objects, tasks):
            self._copied += done.objects
            self._copied_bytes += done.size_bytes
            self._existing += done.existing
            if done.damaged is not None:
                raise DamagedObject(*done.damaged)
            self._show()

    def _show(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._copied + self._existing, self._total)
        if self._on_bytes is not None:
            self._on_bytes(self._copied_bytes)

    def _is_proven(self, each: ObjectToCopy, sizes: Mapping[str, int], proven_entry: int) -> bool:
        size_bytes = sizes.get(each.name)
        if size_bytes is None or each.entry > proven_entry or each.size_bytes not in (-1, size_bytes):
            return False
        self._existing += 1
        return True

    def copy_here(self, each: ObjectToCopy) -> DamagedObject | None:
        """Copy one object in this thread; return what is wrong with it, or with what has its name."""
        task = CopyTask(self._source.uri, self.objects.uri, (each,))
        done = copy_objects(self._source, self.objects, self._log.clock, task)
        self._copied += done.objects
        self._copied_bytes += done.size_bytes
        return None if done.damaged is None else DamagedObject(*done.damaged)

    def hint(self, head: CheckpointHead | None) -> None:
        """Note the checkpoint that processes are to try first, also where nothing else was copied.

        The store may have refused it to the copy before, and that is not an error.
        """
        if head is not None:
            replace_hint(self.objects, names.LAST_CHECKPOINT, encode_hint(CheckpointHint(head.entry, head.checkpoint)))

    def report(self, store: StoreDocument | None, horizon: int, entry: int, **members: Any) -> CopyReport:
        """Return a report on a target that holds, or is to hold, the views from `horizon` to `entry`."""
        store_id = "" if store is None else store.store_id
        return CopyReport(target=self.objects.uri, store_id=store_id, horizon=horizon, entry=entry, **members)

    def copied(self, store: StoreDocument, horizon: int, entry: int) -> CopyReport:
        """Return the report on a copy that is complete."""
        return self.report(
            store,
            horizon,
            entry,
            dry_run=False,
            objects=self._copied,
            size_bytes=self._copied_bytes,
            existing=self._existing,
            is_complete=True,
        )
