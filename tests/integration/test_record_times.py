"""Whose times records have is fixed once a topic has records, for administrators and producers that race, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import Consumer, Producer, Store, TopicPartition
from sparktxn._engine.format.commands import AlterTopic
from sparktxn._engine.state.settings import is_fixed
from sparktxn._kafka.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from sparktxn.errors import CommandRefused, ErrorCode
from tests.halfworld import COMMIT, HalfWorld
from tests.world import messages

NAME = "message.timestamp.type"
CREATE, APPEND = "CreateTime", "LogAppendTime"
GIVEN_MS = 3_600
SINCE_MS = 1_600_000_000_000


class Processes:
    """Handles of one store, each of which knows only what it has read of the log, as other processes do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._clients: list[Any] = []
        self.store = Store.open(str(folder / "store"), create=True, options={"store.fsync": "false"})

    def uri(self) -> str:
        """Return a name of the store whose handles are a process of their own."""
        link = self._folder / f"process{next(self._numbers)}"
        link.symlink_to(self._folder / "store", target_is_directory=True)
        return str(link)

    def admin(self) -> AdminClient:
        return self._kept(AdminClient({"bootstrap.servers": self.uri()}))

    def producer(self, **settings: Any) -> Producer:
        settings = {name.replace("_", "."): value for name, value in settings.items()}
        return self._kept(Producer({"bootstrap.servers": self.uri(), "linger.ms": 60_000, **settings}))

    def _kept(self, client: Any) -> Any:
        self._clients.append(client)
        return client

    def times(self, topic: str = "t") -> list[tuple[int, int]]:
        """Return kind and time of each record, as a consumer that has just started reads them."""
        with Consumer({"bootstrap.servers": self.uri(), "group.id": "g"}) as consumer:
            partitions = consumer.list_topics(topic).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            return [message.timestamp() for message in messages(consumer)]

    def close(self) -> None:
        for client in reversed(self._clients):
            client.close()
        self.store.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.close()


def altered(
    admin: AdminClient, value: str | None, topic: str = "t", *, replaces: bool = False, dry: bool = False
) -> Any:
    """Alter the setting; return None, or the error."""
    if replaces:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config={} if value is None else {NAME: value})
        (future,) = admin.alter_configs([resource], validate_only=dry).values()
    else:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        others = ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)
        entry = ConfigEntry(NAME, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[others, entry])
        (future,) = admin.incremental_alter_configs([resource], validate_only=dry).values()
    error = future.exception()
    return None if error is None else error.args[0]


def settings_of(admin: AdminClient, topic: str = "t") -> tuple[str | None, str | None]:
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return future.result()[NAME].value, future.result()["retention.ms"].value


def wrote(producer: Producer, topic: str = "t", partition: int = 0) -> tuple[int, int]:
    """Send one record, and return the kind and the time in its report."""
    reports: list[Any] = []

    def report(error: Any, message: Any) -> None:
        reports.append((error, message))

    producer.produce(topic, b"v", partition=partition, timestamp=GIVEN_MS, on_delivery=report)
    producer.flush()
    ((error, message),) = reports
    assert error is None, error
    return message.timestamp()


def transaction(processes: Processes, *, committed: bool) -> None:
    producer = processes.producer(transactional_id="x", transaction_publish="flush")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"v", partition=0)
    producer.flush()
    producer.commit_transaction() if committed else producer.abort_transaction()


def one_record(processes: Processes) -> None:
    wrote(processes.producer(), partition=1)


def deleted_records(processes: Processes) -> None:
    wrote(processes.producer())
    (future,) = processes.admin().delete_records([TopicPartition("t", 0, -1)]).values()
    future.result()


HISTORIES: dict[str, Callable[[Processes], None]] = {
    "a record in another partition": one_record,
    "records that were deleted": deleted_records,
    "a transaction": partial(transaction, committed=True),
    "an aborted transaction": partial(transaction, committed=False),
}


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize(("before", "wanted"), [(CREATE, APPEND), (APPEND, CREATE), (APPEND, None)])
def test_a_topic_that_has_had_records_keeps_it(processes, history, replaces, before, wanted):
    processes.store.create_topic("t", 2, settings={NAME: before})
    admin = processes.admin()
    admin.list_topics()
    HISTORIES[history](processes)
    stored, shown = processes.times(), settings_of(admin)
    for dry in (True, False):
        error = altered(admin, wanted, replaces=replaces, dry=dry)
        assert error.code() == ErrorCode.INVALID_CONFIG
        assert f"setting '{NAME}' of topic 't' cannot become {wanted or CREATE}: it has had records" in error.str()
    assert settings_of(admin) == shown
    assert processes.times() == stored
    # Work goes on: the same value changes nothing, and others are set.
    assert altered(admin, before, replaces=replaces) is None
    assert wrote(processes.producer())[0] == (TIMESTAMP_LOG_APPEND_TIME if before == APPEND else TIMESTAMP_CREATE_TIME)


@pytest.mark.parametrize("replaces", [False, True])
def test_a_topic_without_records_changes_it_as_often_as_one_likes(processes, replaces):
    processes.store.create_topic("t", 2)
    admin = processes.admin()
    for value in (APPEND, CREATE, APPEND, None, APPEND):
        assert altered(admin, value, replaces=replaces, dry=True) is None
        assert altered(admin, value, replaces=replaces) is None
        assert settings_of(admin)[0] == (value or CREATE)


@pytest.mark.parametrize(("before", "after"), [(CREATE, APPEND), (APPEND, CREATE)])
@pytest.mark.parametrize("size", [1, 40_000])
def test_another_process_takes_it_up_with_its_next_record(processes, before, after, size):
    """It had looked the topic up, and has records that wait: small ones for the entry, and large ones in a segment."""
    processes.store.create_topic("t", 1, settings={NAME: before})
    producer = processes.producer()
    reports: list[Any] = []
    producer.produce("t", b"v" * size, timestamp=GIVEN_MS, on_delivery=lambda error, message: reports.append(message))
    assert altered(processes.admin(), after) is None
    producer.flush()
    kind = TIMESTAMP_LOG_APPEND_TIME if after == APPEND else TIMESTAMP_CREATE_TIME
    ((found_kind, found_ms),) = processes.times()
    assert found_kind == kind
    assert found_ms == GIVEN_MS if after == CREATE else found_ms > SINCE_MS
    assert [report.timestamp() for report in reports] == [(found_kind, found_ms)]
    wrote(producer)
    assert len({each for each, _ in processes.times()}) == 1


@pytest.mark.parametrize(("before", "after"), [(CREATE, APPEND), (APPEND, CREATE)])
def test_rows_that_were_staged_before_take_it_up(processes, before, after):
    processes.store.create_topic("t", 1, settings={NAME: before})
    times = pa.array([GIVEN_MS], pa.timestamp("ms", "UTC"))
    with Store.open(processes.uri()) as store:
        stager = store.stage_plan(["t"]).open(seed=0, default_topic="t")
        stager.write(pa.table({"value": [b"v"], "timestamp": times}))
        staged = stager.finish()
        assert altered(processes.admin(), after) is None
        store.commit(staged)
    ((kind, time_ms),) = processes.times()
    assert kind == (TIMESTAMP_LOG_APPEND_TIME if after == APPEND else TIMESTAMP_CREATE_TIME)
    assert time_ms == GIVEN_MS if after == CREATE else time_ms > SINCE_MS


def test_of_a_change_and_a_first_record_the_one_that_comes_first_stands(processes):
    """The change was checked when the topic had no records; its entry comes after that of the record."""
    processes.store.create_topic("t", 1)
    late = Store.open(processes.uri()).log
    topic = late.topic("t")
    assert topic is not None
    changes: dict[str, str | None] = {NAME: APPEND}
    ticket = late.send(
        [AlterTopic(late.ids.token(), "t", topic.topic_id, changes)],
        partial(is_fixed, name="t", topic_id=topic.topic_id, changes=changes),
    )
    assert wrote(processes.producer()) == (TIMESTAMP_CREATE_TIME, GIVEN_MS)
    with pytest.raises(CommandRefused, match="it has had records"):
        ticket.wait()
    assert processes.times() == [(TIMESTAMP_CREATE_TIME, GIVEN_MS)]


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_and_first_records(processes, seed):
    """Administrators and producers that know an older state each: what each record's report said is what is read."""
    random = Random(seed)
    for number in range(6):
        topic = f"t{number}"
        processes.store.create_topic(topic, 2)
        admins = [processes.admin() for _ in range(2)]
        producers = [processes.producer() for _ in range(3)]
        reported: list[tuple[int, int]] = []
        for producer in producers:
            if random.random() < 0.7:
                producer.produce(
                    topic, b"w", partition=random.randrange(2), timestamp=GIVEN_MS,
                    on_delivery=lambda error, message, reported=reported: reported.append(message.timestamp()),
                )  # fmt: skip
        for _ in range(8):
            if random.random() < 0.5:
                error = altered(random.choice(admins), random.choice([CREATE, APPEND, None]), topic)
                assert error is None or reported, error
            elif random.random() < 0.5:
                random.choice(producers).flush()
            else:
                reported.append(wrote(random.choice(producers), topic, random.randrange(2)))
        for producer in producers:
            producer.flush()
        assert sorted(processes.times(topic)) == sorted(reported)
        assert len({kind for kind, _ in reported}) <= 1
        assert all((ms == GIVEN_MS) == (kind == TIMESTAMP_CREATE_TIME) for kind, ms in reported)


def test_half_messages_that_wait_keep_it():
    """They get their times once they are committed; after that the topic has records."""
    world = HalfWorld()
    shop = world.shop()
    sent = shop.send("a")
    with world.admin() as admin:
        error = altered(admin, APPEND, "orders")
        assert error.code() == ErrorCode.INVALID_CONFIG
        assert f"half transaction {sent.transaction_id!r} has messages for topic 'orders': end it first" in error.str()
        assert altered(admin, APPEND, "mail") is None
        shop.listener.checked[b"a"] = COMMIT
        world.pass_s(60)
        assert world.visible() == ["a"]
        assert "it has had records" in altered(admin, APPEND, "orders").str()
        shop.send("b", COMMIT, topic="mail")
        ((kind, time_ms),) = [(row["timestampType"], row["timestamp"]) for row in world.rows("mail")]
        assert (kind, time_ms is not None) == (1, True)
    world.close()
