"""Settings of RocketMQ's transactional producers, under names of RocketMQ's with Kafka's dots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparktxn._engine.state.limits import HALF_WAIT_MS_MAX
from sparktxn._foundation.config.settings import setting, settings_of
from sparktxn._foundation.config.values import BYTES, MILLISECONDS, boolean, choice, integer
from sparktxn._kafka.settings.client import ClientSettings
from sparktxn._kafka.settings.producer import PARTITIONERS


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000


@dataclass(frozen=True, kw_only=True)
class HalfMessageSettings(ClientSettings):
    """The settings of a transactional producer."""

    client = "transactional producer"

    immunity_ms: int = setting(
        "transaction.timeout.ms",
        6_000,
        integer(0, HALF_WAIT_MS_MAX, MILLISECONDS),
        "How long a half message is not checked after it was sent, unless it says so itself (CHECK_IMMUNITY_TIME_IN_SECONDS).",
        aliases=("transactionTimeOut",),
    )
    check_interval_ms: int = setting(
        "transaction.check.interval.ms",
        30_000,
        integer(1, HALF_WAIT_MS_MAX, MILLISECONDS),
        "How long after a check a half message that is still pending is checked again.",
        aliases=("transactionCheckInterval",),
    )
    checks_max: int = setting(
        "transaction.check.max",
        15,
        integer(1, 1_000_000),
        "After this many checks a half message is discarded: it is kept, and checked no more, until an administrator resumes it.",
        aliases=("transactionCheckMax",),
    )
    check_poll_s: float = setting(
        "transaction.check.poll.ms",
        1_500,
        integer(1, 3_600_000, MILLISECONDS),
        "How often a started producer reads the log for half messages whose checks are due.",
        convert=_seconds,
    )
    send_timeout_s: float = setting(
        "send.message.timeout.ms",
        30_000,
        integer(1, 2**31 - 1, MILLISECONDS),
        "How long a send or a settlement may take where the call is given no time-out.",
        aliases=("sendMsgTimeout",),
        convert=_seconds,
    )
    end_waits: bool = setting(
        "transaction.end.wait",
        False,
        boolean,
        "Whether send_message_in_transaction() returns only once the outcome is stored, for a program that reads its own messages. RocketMQ sends the outcome one way; commit() of RocketMQ 5 always waits.",
    )
    message_bytes_max: int = setting(
        "max.message.size",
        4_194_304,
        integer(1, 1_000_000_000, BYTES),
        "The largest body of a message; the topic's max.message.bytes counts too.",
        aliases=("maxMessageSize",),
    )
    partitioner: str = setting(
        "partitioner", PARTITIONERS[0], choice(*PARTITIONERS), "How a message's key chooses its partition."
    )


HALF_MESSAGE_SETTINGS: Final = settings_of(HalfMessageSettings)
