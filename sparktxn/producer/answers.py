"""What a producer answers about its store and itself."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from sparktxn.kafka.clustermetadata import ClusterMetadata, cluster_metadata
from sparktxn.kafka.credentials import WithoutCredentials
from sparktxn.kafka.settings.producer import ProducerSettings
from sparktxn.process.clock import Clock, in_time
from sparktxn.producer.states import TransactionPhase
from sparktxn.values import arguments
from sparktxn.values.notebooks import html_table

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["ProducerLookups", "clock_of", "closing_time_s", "own_time_s"]


clock_of: Final = attrgetter("_clock")
"""Returns the clock of a producer's store."""

own_time_s: Final = attrgetter("_own_time_s")
"""Returns how long a call without a time-out may take: a transaction's own time; None outside of transactions."""

closing_time_s: Final = attrgetter("_closing_time_s")
"""Returns how long close() without a time-out may take."""


class ProducerLookups(WithoutCredentials):
    """The calls of a producer that write nothing, and how it shows itself."""

    _clock: Clock
    _own_time_s: float | None
    _settings: ProducerSettings
    _unusable: str | None

    def __repr__(self) -> str:
        transactional_id, state = self._settings.transactional_id, self.transaction_state.value
        parts = [repr(self._settings.uri)]
        if transactional_id is not None:
            parts += [f"transactional id {transactional_id!r}", state]
        if self._unusable is not None:
            parts.append("closed")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        settings = self._settings
        row = (settings.uri, settings.transactional_id, self.transaction_state.value, len(self))
        return html_table("Producer", ("store", "transactional id", "transaction state", "waiting"), [row])

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def transaction_state(self) -> TransactionPhase:
        """Where the producer is in its transactions."""
        raise NotImplementedError

    @in_time("timeout", clock_of)
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return all topics, or `topic` alone, which carries an error if it does not exist."""
        self._check()
        topic = arguments.text_or_none("topic", topic)
        log, _ = self._connect()
        log.refresh()
        return cluster_metadata(log.objects.uri, log.listed_topics(topic), topic)

    @in_time("timeout", clock_of)
    def cluster_id(self, timeout: float = -1) -> str:
        """Return the id that the store was created with; `timeout` is in seconds."""
        self._check()
        return self._connect()[0].store_id

    def _connect(self) -> tuple[Log, Any]:
        raise NotImplementedError
