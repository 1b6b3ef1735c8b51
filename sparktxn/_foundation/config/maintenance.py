"""Settings of maintenance, under Kafka's names where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sparktxn._foundation.config.settings import Settings, setting, settings_of
from sparktxn._foundation.config.values import BYTES, MILLISECONDS, integer, text
from sparktxn.errors import ConfigurationError

_DAY_MS: Final = 86_400_000
_expiration_ms: Final = integer(1, 2**53, MILLISECONDS)


def _never_or_ms(named: str, value: Any) -> int | None:
    """never, or a whole number of milliseconds from 1 to 9007199254740992"""
    if value is None or (isinstance(value, str) and str.lower(value) == "never"):
        return None
    try:
        parsed: int = _expiration_ms(named, value)
    except ConfigurationError as wrong:
        raise ConfigurationError(f"{wrong}, or never") from None
    return parsed


def _none_if_never(value: Any) -> Any:
    return None if value == "never" else value


@dataclass(frozen=True, kw_only=True)
class SweepSettings(Settings):
    """The settings of a sweep."""

    of = "sweep"

    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        7 * _DAY_MS,
        _expiration_ms,
        "A transactional id that has been idle for so long is forgotten, unless it has an open transaction or sink.expiration.ms is for it.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        _DAY_MS,
        _expiration_ms,
        "A producer that has been idle in a partition for so long is forgotten there, unless it has an open transaction.",
    )
    sink_expiration_ms: int | None = setting(
        "sink.expiration.ms",
        "never",
        _never_or_ms,
        "The same for a transactional id that a streaming sink or an application has committed batches with, or that has prepared a transaction. Once it is forgotten, a replayed batch is written again, and the end of that transaction is unknown.",
        convert=_none_if_never,
    )


SWEEP_SETTINGS: Final = settings_of(SweepSettings)


@dataclass(frozen=True, kw_only=True)
class VacuumSettings(Settings):
    """The settings of a vacuum."""

    of = "vacuum"

    retention_ms: int = setting(
        "vacuum.retention.ms",
        7 * _DAY_MS,
        integer(0, 2**53, MILLISECONDS),
        "How far back time travel reaches: entries, and what only they name, are kept for at least so long.",
    )
    segment_age_ms: int = setting(
        "vacuum.segment.age.ms",
        _DAY_MS,
        integer(0, 2**53, MILLISECONDS),
        "Segments that nothing names are deleted once their upload began longer ago than this, and than twice the longest transaction time-out. A writer that takes longer must upload again; what other engines have left in folders of tables goes at this age, too.",
    )
    temporary_age_ms: int = setting(
        "vacuum.temporary.age.ms",
        _DAY_MS,
        integer(0, 2**53, MILLISECONDS),
        "On a local disk: temporary files of writers that were killed are deleted at this age.",
    )
    list_all_ms: int = setting(
        "vacuum.list.all.ms",
        7 * _DAY_MS,
        integer(0, 2**53, MILLISECONDS),
        "After how long a vacuum lists all objects of topics again. Those in between list what is new, and know from the log what is no longer needed; 0: all list everything.",
    )


VACUUM_SETTINGS: Final = settings_of(VacuumSettings)


def _listed(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class RewriteSettings(Settings):
    """The settings of a rewrite."""

    of = "rewrite"

    topics: tuple[str, ...] = setting(
        "rewrite.topics",
        "",
        text,
        "The topics to rewrite, with commas between them. Empty: all.",
        convert=_listed,
    )
    target_bytes: int = setting(
        "rewrite.target.bytes",
        33_554_432,
        integer(1_024, 46 * 1024 * 1024, BYTES),
        "About how large the new files become; one put must hold a file. Files of less than half of that count as small, and Arrow files are converted whatever their size.",
    )
    min_segments: int = setting(
        "rewrite.min.segments",
        5,
        integer(2, 1_000_000),
        "Fewer consecutive small files than this are left as they are.",
    )
    min_age_ms: int = setting(
        "rewrite.min.age.ms",
        0,
        integer(0, 2**53, MILLISECONDS),
        "Segments with a record that is younger than this, by the newest entry's time, are left as they are.",
    )


REWRITE_SETTINGS: Final = settings_of(RewriteSettings)


@dataclass(frozen=True, kw_only=True)
class CompactSettings(Settings):
    """The settings of a compaction by key."""

    of = "compact"

    topics: tuple[str, ...] = setting(
        "compact.topics",
        "",
        text,
        "The topics to compact, with commas between them. Empty: all whose cleanup.policy has compact.",
        convert=_listed,
    )
    target_bytes: int = setting(
        "compact.target.bytes",
        33_554_432,
        integer(1_024, 46 * 1024 * 1024, BYTES),
        "About how large the new files become; one put must hold a file.",
    )
    buffer_bytes: int = setting(
        "compact.dedupe.buffer.bytes",
        67_108_864,
        integer(65_536, 2**30, BYTES),
        "How many bytes the keys of one partition may take in memory, about. Where they take more, the records' keys are read several times.",
    )


COMPACT_SETTINGS: Final = settings_of(CompactSettings)
