"""A store that calls are tried on, and the questions that it is asked after each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sparktxn import Consumer, Producer, ProducerFenced, Store, TopicPartition
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore import open_store
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import InlineBackground
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn.admin import AdminClient, NewTopic
from tests.compatibility.independent_reader import StoreReader

__all__ = ["OPTIONS", "World"]

OPTIONS: Final = {"store.fsync": False}
_WITNESS: Final = TopicPartition("witness", 0)
_RECORDS: Final = [b"0", b"1", b"2"]


class World:
    """A store with the topics ``t``, ``typed`` and ``witness``; all clients of it share this process's log."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder)
        self.settings = {"bootstrap.servers": self.uri, **OPTIONS}
        self.made = 0
        self._closing: list[Callable[[], object]] = []
        self.admin = AdminClient(self.settings)
        columns = pa.schema([("id", pa.int64())])
        topics = [NewTopic("t", 2), NewTopic("typed", 1, schema=columns), NewTopic("witness", 1)]
        for future in self.admin.create_topics(topics).values():
            future.result()
        self.store = Store.open(self.uri, options=OPTIONS)
        self._witness = Consumer({**self.settings, "group.id": "witness", "enable.auto.commit": False})
        self._commits = 0
        with Producer({**self.settings, "transactional.id": "before"}) as producer:
            producer.init_transactions()
            with producer.transaction():
                for value in _RECORDS:
                    producer.produce("t", value, partition=0)
                producer.produce_arrow("typed", pa.table({"id": [1, 2, 3]}))
                for value in _RECORDS:
                    producer.produce("witness", value)
        self.check()

    def name(self, what: str) -> str:
        """A name that no other call of this world has."""
        self.made += 1
        return f"{what}-{self.made}"

    def topic(self) -> str:
        """A topic for a call that may change or delete it."""
        name = self.name("topic")
        self.admin.create_topics([NewTopic(name, 1)])[name].result()
        return name

    def typed(self) -> str:
        """A topic with declared columns, for a call that may change it."""
        name = self.name("columns")
        self.admin.create_topics([NewTopic(name, 1, schema=pa.schema([("id", pa.int64())]))])[name].result()
        return name

    def keyed(self) -> str:
        """A topic with a key, for a call that may write to it."""
        name = self.name("keyed")
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        self.store.create_topic(name, 1, settings={"primary.key": "id"}, schema=schema)
        return name

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer at the beginning of ``t``, closed after the call."""
        consumer = Consumer(
            {**self.settings, "group.id": self.name("group"), "auto.offset.reset": "earliest", **settings}
        )
        self._closing.append(consumer.close)
        consumer.assign([TopicPartition("t", 0, 0)])
        return consumer

    def producer(self, **settings: Any) -> Producer:
        """A producer, closed after the call."""
        producer = Producer({**self.settings, **settings})
        self._closing.append(lambda: producer.close(5))
        return producer

    def transactional(self) -> Producer:
        """A producer inside a transaction with one record, which is aborted after the call if it is still open."""
        producer = Producer({**self.settings, "transactional.id": self.name("id")})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"aborted", partition=1)
        self._closing.append(lambda: _abort_and_close(producer))
        return producer

    def later(self, close: Callable[[], object]) -> None:
        """Close what a call was tried on after it."""
        self._closing.append(close)

    def close_clients(self) -> None:
        """Close what the call was tried on; none of it may fail."""
        closing, self._closing = self._closing, []
        for close in reversed(closing):
            close()

    def check(self) -> None:
        """Another client of the process commits, and a log that is opened anew holds what this process's log holds."""
        self._commits += 1
        wanted = TopicPartition(_WITNESS.topic, _WITNESS.partition, self._commits)
        self._witness.commit(offsets=[wanted], asynchronous=False)
        known = self.store.log
        settings = StoreSettings(fsync=False)
        objects = open_store(self.uri, settings=settings, storage={}, clock=SystemClock())
        log = Log.open(
            objects,
            settings=settings,
            clock=SystemClock(),
            ids=RandomIds(),
            background=InlineBackground(),
            create=False,
        )
        try:
            with log.within(10):
                log.refresh()
            assert log.entry >= known.entry, f"a new log ends at entry {log.entry}, this process's at {known.entry}"
            topic = known.topic(_WITNESS.topic)
            assert topic is not None, "the topic 'witness' is gone"
            found = log.committed_offset("witness", topic.topic_id, _WITNESS.partition)
            offset = None if found is None else found.offset
            assert offset == self._commits, f"{found} instead of {wanted}"
            assert log.topics() == known.topics(), "a new log has other topics"
            assert _sorted(log.transactions()) == _sorted(known.transactions()), "a new log has other transactions"
            assert _sorted(log.committed_offsets()) == _sorted(known.committed_offsets()), "a new log has other offsets"
        finally:
            log.close()

    def finish(self) -> None:
        """An independent reader finds what was committed before all calls."""
        self.close_clients()
        reader = StoreReader(Path(self.uri))
        state = reader.state_from_first()
        found = reader.records(state, "witness", "read_committed")
        values = [found[0, offset]["value"] for offset in range(len(_RECORDS))]
        assert values == _RECORDS, f"an independent reader finds {values}"

    def close(self) -> None:
        """Close all handles."""
        self.close_clients()
        self._witness.close()
        self.store.close()
        self.admin.close()


def _sorted(records: Iterable[Any]) -> list[Any]:
    return sorted(records, key=lambda record: record.key)


def _abort_and_close(producer: Producer) -> None:
    with suppress(ProducerFenced):  # by the call that was tried
        _abort(producer)
    producer.close(5)


def _abort(producer: Producer) -> None:
    if producer.transaction_state.name in ("IN_TRANSACTION", "ABORTABLE_ERROR", "PREPARED_TRANSACTION"):
        producer.abort_transaction(5)
