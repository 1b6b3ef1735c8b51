"""Limits that the state machine enforces. They are part of the format: a log that obeys others cannot be read here."""

from __future__ import annotations

from typing import Final

PARTITION_COUNT_MAX: Final = 10_000
"""Partitions of a topic."""
TRANSACTION_TIMEOUT_MS_MAX: Final = 900_000
"""Time-out of a transaction, as Kafka's default of transaction.max.timeout.ms."""
METADATA_BYTES_MAX: Final = 4_096
"""Metadata of a committed offset, in UTF-8, as Kafka's default of offset.metadata.max.bytes."""
GROUP_MEMBERS_MAX: Final = 10_000
"""Members of a consumer group."""
GROUP_TIMEOUT_MS_MAX: Final = 2**31 - 1
"""Time-outs of a member: Kafka's are 32-bit numbers."""
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1_000
LOG_END_OFFSET_MAX: Final = 2**62
HALF_WAIT_MS_MAX: Final = 30 * 24 * 3_600_000
"""Wait for the next check of a half transaction: 30 days."""
