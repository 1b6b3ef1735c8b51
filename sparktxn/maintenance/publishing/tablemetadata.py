"""Writing what a version of a table looks like in each format, when it is published and when it is repaired.

The objects follow from the log, and from those of the version before. So any process may write them, and what one has
left is finished by the next. An object that exists is right: it is put if it is absent, and only hints are overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import cache, partial
from typing import Final

from sparktxn._engine.format import names
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.puts import put_until_stored, replace_hint
from sparktxn._foundation.values.structs import PublishedPartition, TableState
from sparktxn._rows.scan.tablefiles import newest_version, whole_version, with_statistics
from sparktxn._rows.tableformats import delta
from sparktxn._rows.tableformats import version as icebergnames
from sparktxn._rows.tableformats.version import TableVersion
from sparktxn.errors import DamagedObject
from sparktxn.maintenance.publishing import tableobjects

_CHECKPOINT_VERSIONS: Final = 100
"""A Delta table gets a checkpoint after so many versions: a reader reads at most so many commits after it."""


def write_metadata(
    log: Log,
    table: TableState,
    published: Sequence[PublishedPartition],
    *,
    formats: Container[str] | None = None,
    first: int | None = None,
) -> TableVersion:
    """Write the newest version of a table in its formats, where it is missing; return it.

    Args:
        log: the store.
        table: the table, as it was when the version was the newest one.
        published: its partitions, as they were then.
        formats: those to write, of the table's; None for all of them.
        first: the oldest version that can be read, if that is another one by now.

    Raises:
        DamagedObject: an object that it is made from is missing or damaged, or has other bytes than it must have.
        StoreUnavailable: the store did not take an object; another call goes on.
    """
    version = with_statistics(log.objects, newest_version(log.objects, log.store_id, table, published))

    @cache
    def whole() -> TableVersion:
        return with_statistics(log.objects, whole_version(log.objects, table, published, version))

    wanted = [each for each in table.formats if formats is None or each in formats]
    first = table.kept[0].version if first is None else first
    if "delta" in wanted:
        _Delta(log, version).write(whole, first)
    if "iceberg" in wanted:
        _Iceberg(log, version).write(whole, first)
    return version


class _Folder:
    """The metadata of one version, in the topic's folder."""

    def __init__(self, log: Log, version: TableVersion) -> None:
        self._log = log
        self._version = version
        self._folder = names.topic_folder(version.topic, version.topic_id)

    def _get(self, name: str) -> bytes | None:
        return self._log.objects.get(self._folder + name)

    def _read(self, name: str) -> bytes:
        return tableobjects.metadata_object(self._log.objects, self._folder + name)

    def _put(
        self, name: str, data: bytes, *, is_canonical: bool = True, earlier: Callable[[], bytes] | None = None
    ) -> None:
        """Put an object that is absent; one that is there is the same, or what `earlier` versions made of it."""
        stored = put_until_stored(self._log.objects, self._folder + name, data, self._log.clock)
        if is_canonical and stored != data and (earlier is None or stored != earlier()):
            raise DamagedObject(
                self._folder + name, f"it is not version {self._version.version} of the table as the log has it"
            )


class _Delta(_Folder):
    """The log of a Delta table. A version whose predecessor has no commit begins with a checkpoint of its own."""

    def write(self, whole: Callable[[], TableVersion], first: int) -> None:
        """Write the commit, and before it the checkpoint of `first`, the oldest version that can be read.

        A version without commits before it has its checkpoint first. So `first` may have no commit: the topic was not
        a Delta table then, or it was in the store that this one is a copy of.
        """
        number = self._version.version
        previous = self._get(delta.commit_name(number - 1)) if number else None
        commit = self._commit(whole, previous)
        newest = 0
        if number and previous is None:
            self._checkpoint(number, None, [delta.commit(whole(), whole, None)])
            newest = number
        elif first:
            newest = self._oldest_checkpoint(first, commit if first == number else None)
        self._put(delta.commit_name(number), commit, earlier=partial(delta.earlier_commit, self._version))
        if number and number % _CHECKPOINT_VERSIONS == 0:
            self._checkpoint_after(number, commit)
            newest = number
        if newest:
            self._hint(newest)

    def _commit(self, whole: Callable[[], TableVersion], previous: bytes | None) -> bytes:
        try:
            return delta.commit(self._version, whole, previous)
        except tableobjects.WRONG_METADATA as error:
            name = self._folder + delta.commit_name(self._version.version - 1)
            raise DamagedObject(name, f"the next commit cannot be made from it: {error}") from error

    def _oldest_checkpoint(self, first: int, commit: bytes | None) -> int:
        """Return the version from whose checkpoint on those from `first` on are read.

        `first` gets one if it has none. `commit` is that of `first`; None if it is stored.
        """
        if self._get(delta.checkpoint_name(first)) is not None:
            return first
        known = self._get(delta.commit_name(first)) if commit is None else commit
        if known is not None:
            self._checkpoint_after(first, known)
            return first
        # The first version after a gap has a checkpoint of its own.
        return tableobjects.format_versions(self._log.objects, self._folder, "delta").needed_from(first) or 0

    def _checkpoint_after(self, number: int, commit: bytes) -> None:
        """Write the checkpoint of a version, from the newest one below it and the commits since."""
        if self._get(delta.checkpoint_name(number)) is not None:
            return
        commits = [commit]
        before = number - 1
        previous = None
        while before >= 0 and (previous := self._get(delta.checkpoint_name(before))) is None:
            commits.append(self._read(delta.commit_name(before)))
            before -= 1
        self._checkpoint(number, previous, commits[::-1])

    def _checkpoint(self, number: int, previous: bytes | None, commits: Sequence[bytes]) -> None:
        try:
            data = delta.checkpoint(previous, commits)
        except tableobjects.WRONG_METADATA as error:
            name = self._folder + delta.checkpoint_name(number)
            raise DamagedObject(name, f"it cannot be made from the commits before it: {error}") from error
        self._put(delta.checkpoint_name(number), data, is_canonical=False)

    def _hint(self, number: int) -> None:
        """Have the hint name a checkpoint, or one above it."""
        hint = self._get(delta.LAST_CHECKPOINT)
        hinted = delta.hinted_version(hint) if hint is not None else None
        if hinted is None or hinted < number:
            data = self._read(delta.checkpoint_name(number))
            replace_hint(self._log.objects, self._folder + delta.LAST_CHECKPOINT, delta.last_checkpoint(number, data))


class _Iceberg(_Folder):
    """The metadata of an Iceberg table. A version whose predecessor has none, or is elsewhere, has all files anew."""

    def write(self, whole: Callable[[], TableVersion], first: int) -> None:
        """Write manifests, the list of them and the metadata, in this order; then the hint.

        What a publisher of an earlier version of this package has begun is finished as it would have done it.
        """
        version = self._version
        objects = tableobjects.iceberg_objects(self._log.objects, version, whole, first)
        try:
            self._put_all(objects)
        except DamagedObject:
            self._put_all(tableobjects.iceberg_objects(self._log.objects, version, whole, first, is_earlier=True))
        hint = icebergnames.version_hint(version.version)
        self._log.objects.put(self._folder + icebergnames.VERSION_HINT, hint)

    def _put_all(self, objects: Sequence[tuple[str, bytes]]) -> None:
        for name, data in objects:
            self._put(name, data)
