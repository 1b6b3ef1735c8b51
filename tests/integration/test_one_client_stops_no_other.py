"""A client that asks for what cannot be written gets an error, and the others of its process go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition
from sparktxn._engine.format.commands import OffsetCommit, OffsetToCommit
from tests.world import store_in_memory

HOSTILE: list[Any] = [numpy.int64(5), numpy.float64(5), 5.0, True, 2**63]


@pytest.fixture
def uri() -> Iterator[str]:
    with store_in_memory("t") as address:
        yield address


def refused(call: Callable[[], object]) -> None:
    """Makes the call, which may fail or not: what it leaves behind is looked at afterwards."""
    try:
        call()
    except (KafkaException, TypeError, ValueError, OverflowError):
        return


def assert_all_is_well(uri: str) -> None:
    """Another client of this process commits, and a process that opens the store sees it."""
    with Producer({"bootstrap.servers": uri, "transactional.id": "other"}) as producer:
        producer.init_transactions(5)
        producer.begin_transaction()
        producer.produce("t", b"well")
        producer.commit_transaction(5)
    with Store.open(uri) as store:
        assert store.view(["t"]).partitions["t", 0].last_stable_offset == 2


@pytest.mark.parametrize("offset", HOSTILE, ids=repr)
def test_an_asynchronous_commit_of_what_is_no_offset(uri: str, offset: Any) -> None:
    consumer = Consumer({"bootstrap.servers": uri, "group.id": "g"})
    partition = TopicPartition("t", 0, 1)
    refused(lambda: setattr(partition, "offset", offset))
    refused(lambda: consumer.commit(offsets=[partition], asynchronous=True))
    assert_all_is_well(uri)
    consumer.close()


def test_metadata_that_is_no_text(uri: str) -> None:
    consumer = Consumer({"bootstrap.servers": uri, "group.id": "g"})
    refused(lambda: consumer.commit(offsets=[TopicPartition("t", 0, 1, "\ud800")], asynchronous=True))
    assert_all_is_well(uri)
    consumer.close()


@pytest.mark.parametrize("call", ["abort_transaction", "close"])
def test_a_transaction_whose_list_is_refused_is_aborted(uri: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that have passed every check of a client, as those of a client without checks would."""
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "job"})
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("t", b"lost")
    with monkeypatch.context() as patched:
        add_unwritable(patched, producer)
        with pytest.raises(KafkaException) as error:
            producer.commit_transaction(5)
    assert error.value.error.txn_requires_abort()
    getattr(producer, call)()
    assert_all_is_well(uri)
    producer.close()


def test_a_plain_producer_whose_list_is_refused_reports_it_and_goes_on(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Any] = []
    with Producer({"bootstrap.servers": uri}) as producer:
        with monkeypatch.context() as patched:
            add_unwritable(patched, producer)
            producer.produce("t", b"lost", on_delivery=lambda error, _: errors.append(error))
            assert producer.flush(10) == 0
        assert errors
        assert errors[0] is not None
        producer.produce("t", b"stored", on_delivery=lambda error, _: errors.append(error))
        producer.flush(10)
        assert errors[1:] == [None]


def add_unwritable(patched: pytest.MonkeyPatch, producer: Producer) -> None:
    log, _ = producer._connect()
    send = log.send
    patched.setattr(log, "send", lambda commands, *more: send([*commands, _unwritable()], *more))


def _unwritable() -> Any:
    return OffsetCommit("request", "group", (OffsetToCommit(1, 0, 5.0),))  # type: ignore[arg-type]
