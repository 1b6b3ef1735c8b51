"""Settings of maintenance, under Kafka's names where it has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from sparktxn.config.settings import Setting, integer, parse_settings
from sparktxn.errors import ConfigurationError

__all__ = ["SWEEP_SETTINGS", "VACUUM_SETTINGS", "SweepSettings", "VacuumSettings"]

_DAY_MS: Final = 86_400_000
_expiration_ms: Final = integer(1, 2**53)


def _never_or_ms(name: str, value: Any) -> int | None:
    """never, or a whole number from 1 to 9007199254740992"""
    if value is None or str(value).lower() == "never":
        return None
    try:
        parsed: int = _expiration_ms(name, value)
    except ConfigurationError as wrong:
        raise ConfigurationError(f"{wrong}, or never") from None
    return parsed


SWEEP_SETTINGS: Final = (
    Setting("transactional.id.expiration.ms", 7 * _DAY_MS, _expiration_ms, "A transactional id that has been idle for so long is forgotten, unless it has an open transaction or sink.expiration.ms is for it."),
    Setting("producer.id.expiration.ms", _DAY_MS, _expiration_ms, "A producer that has been idle in a partition for so long is forgotten there, unless it has an open transaction."),
    Setting("sink.expiration.ms", "never", _never_or_ms, "The same for a transactional id that a streaming sink or an application has committed batches with, or that has prepared a transaction: once it is forgotten, a replayed batch is written again, and nobody can tell how that transaction ended."),
)  # fmt: skip


class SweepSettings(Struct, frozen=True, kw_only=True):
    """The parsed settings; see SWEEP_SETTINGS for their meaning."""

    transactional_id_expiration_ms: int = 7 * _DAY_MS
    producer_id_expiration_ms: int = _DAY_MS
    sink_expiration_ms: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> SweepSettings:
        """The settings of `given`, which holds only names of SWEEP_SETTINGS.

        Raises:
            ConfigurationError: a name or a value is wrong.
        """
        parsed = parse_settings(SWEEP_SETTINGS, given, "sweep")
        sink_ms = parsed["sink.expiration.ms"]
        return cls(
            transactional_id_expiration_ms=parsed["transactional.id.expiration.ms"],
            producer_id_expiration_ms=parsed["producer.id.expiration.ms"],
            sink_expiration_ms=None if sink_ms == "never" else sink_ms,
        )


VACUUM_SETTINGS: Final = (
    Setting("vacuum.retention.ms", 7 * _DAY_MS, integer(0, 2**53), "How far back time travel reaches: entries, and what only they name, are kept for at least so long."),
    Setting("vacuum.segment.age.ms", _DAY_MS, integer(0, 2**53), "Segments that nothing names are deleted once their upload began longer ago than this, and than twice the longest transaction time-out; a writer that takes longer must upload again."),
    Setting("vacuum.temporary.age.ms", _DAY_MS, integer(0, 2**53), "On a local disk: temporary files of writers that were killed are deleted at this age."),
)  # fmt: skip


class VacuumSettings(Struct, frozen=True, kw_only=True):
    """The parsed settings; see VACUUM_SETTINGS for their meaning."""

    retention_ms: int = 7 * _DAY_MS
    segment_age_ms: int = _DAY_MS
    temporary_age_ms: int = _DAY_MS

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> VacuumSettings:
        """The settings of `given`, which holds only names of VACUUM_SETTINGS.

        Raises:
            ConfigurationError: a name or a value is wrong.
        """
        parsed = parse_settings(VACUUM_SETTINGS, given, "vacuum")
        return cls(
            retention_ms=parsed["vacuum.retention.ms"],
            segment_age_ms=parsed["vacuum.segment.age.ms"],
            temporary_age_ms=parsed["vacuum.temporary.age.ms"],
        )
