"""Settings of a store's handle: how it writes, how long it waits, how often it makes checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from sparktxn._foundation.config.settings import Settings, setting, settings_of
from sparktxn._foundation.config.values import BYTES, MILLISECONDS, boolean, integer

STORAGE_PREFIX: Final = "storage."

_CHECKPOINT_BYTES_PER_ENTRY: Final = 131_072
MERGE_RUNS: Final = 16


@dataclass(frozen=True, kw_only=True)
class StoreSettings(Settings):
    """The settings of a handle."""

    of = "store"

    fsync: bool = setting(
        "store.fsync", True, boolean, "On a local disk: wait until segments, entries and their folders are on the disk."
    )
    request_timeout_ms: int = setting(
        "store.request.timeout.ms",
        30_000,
        integer(100, 600_000, MILLISECONDS),
        "How long one request to the object store may take.",
    )
    upload_threads: int = setting(
        "store.upload.threads", 4, integer(1, 64), "How many segments a process uploads side by side."
    )
    inline_bytes: int = setting(
        "store.append.inline.bytes",
        49_152,
        integer(0, 49_152, BYTES),
        "A lower append.inline.bytes for all topics that this process writes; 0: its records go into segment files.",
    )
    checkpoint_entries: int = setting(
        "checkpoint.entries",
        64,
        integer(1, 100_000),
        "A checkpoint is written when this many entries are newer than the newest one, or those that are newer have 128 KiB times this number. They also have at least two fifths of the bytes of its head, which grows with the topics.",
    )
    checkpoint_merge_runs: int = field(default_factory=lambda: MERGE_RUNS)
    """How many sealed runs of about one length are merged into one."""
    checkpoint_seal_segments: int = setting(
        "checkpoint.seal.segments",
        64,
        integer(2, 10_000),
        "A partition's segments are sealed into a manifest when this many are not. 16 manifests of about one length are merged into one.",
    )
    fold_bytes_per_minute: int = setting(
        "checkpoint.fold.bytes.per.minute",
        134_217_728,
        integer(0, 2**40, BYTES),
        "A process that has written a checkpoint folds small segments into larger files, in the background. It reads at most this many bytes of them in a minute; 0: it folds none.",
    )
    timeout_check_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        integer(1, 2**53, MILLISECONDS),
        "How often a process that writes, or waits for records, checks which transactions block its partitions. It aborts those whose time-out has passed since it first saw them.",
    )
    clock_skew_ms_max: int = setting(
        "clock.skew.max.ms",
        600_000,
        integer(1_000, 2**53, MILLISECONDS),
        "How far a writer's clock may be from the store's, in either direction; a writer that is further off writes nothing.",
    )

    @cached_property
    def checkpoint_bytes(self) -> int:
        """How many bytes of entries are worth a checkpoint, however few entries have them."""
        return self.checkpoint_entries * _CHECKPOINT_BYTES_PER_ENTRY


STORE_SETTINGS: Final = settings_of(StoreSettings)


class StoreOptions(dict[str, Any]):
    """Settings of a store's handle by name. Printing them shows no value: there are credentials among them."""

    def __repr__(self) -> str:
        return f"<{', '.join(sorted(self))}>"


def is_store_setting(name: str) -> bool:
    """Return True for names that belong to the store's handle: STORE_SETTINGS and ``storage.*``."""
    return name.startswith(STORAGE_PREFIX) or any(known.name == name for known in STORE_SETTINGS)


def storage_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``storage.*`` settings without their prefix: fsspec gets them as they are (credentials, endpoint)."""
    return {name[len(STORAGE_PREFIX) :]: value for name, value in given.items() if name.startswith(STORAGE_PREFIX)}
