"""Instances of one service as real processes: two at once, and one that takes over from one that was killed."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from examples.consume_transform_produce import check, create, everything
from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
SERVICE = "examples/consume_transform_produce.py"

PAYMENTS = 1_000

DYING_MEMBER = """
import os, signal, sys
from sparktxn import Consumer, Producer
store = sys.argv[1]
consumer = Consumer(
    {"bootstrap.servers": store, "group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": 1_500}
)
producer = Producer(
    {"bootstrap.servers": store, "transactional.id": "instance-1", "transaction.timeout.ms": 1_500}
)
producer.init_transactions()
consumer.subscribe(["t"])
consumer.consume(3, 10)
producer.begin_transaction()
positions = consumer.position(consumer.assignment())
producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
producer.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.kafka("K106")
@pytest.mark.parametrize("publish_early", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_two_instances_of_one_group_process_each_input_once(tmp_path: Path, publish_early: bool) -> None:
    create(str(tmp_path), 0)
    command = [sys.executable, SERVICE, "--store", str(tmp_path), "--batch", "50"]
    if publish_early:
        command.append("--publish-early")
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen([*command, "--name", name], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            )
            for name in ("one", "other")
        ]
        for process in processes:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
        create(str(tmp_path), PAYMENTS)
        deadline_s = time.monotonic() + 120
        while len(everything(str(tmp_path), "receipts")) < PAYMENTS and time.monotonic() < deadline_s:
            time.sleep(0.2)
        for process in processes:
            process.terminate()
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert check(str(tmp_path)) == 0
    assert not [line for output in outputs for line in output.splitlines() if "reads again" in line]
    assert all("payments became" in output for output in outputs), "both have worked"


@pytest.mark.kafka("K44", "K105")
def test_a_member_takes_over_from_one_that_was_killed_with_offsets_pending(tmp_path: Path) -> None:
    uri = str(tmp_path)
    with Store.open(uri, create=True) as store:
        store.create_topic("t", 1)
    with Producer({"bootstrap.servers": uri}) as producer:
        for number in range(3):
            producer.produce("t", str(number))
    killed = subprocess.run([sys.executable, "-c", DYING_MEMBER, uri], cwd=ROOT, capture_output=True, timeout=60)
    assert killed.returncode == -9, killed.stderr.decode()
    settings = {
        "bootstrap.servers": uri,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    }
    with Consumer(settings) as consumer:
        with pytest.raises(KafkaException, match="an open transaction holds"):
            consumer.committed([TopicPartition("t", 0)], 0.5)
        consumer.subscribe(["t"])
        values = [message.value() for message in consumer.consume(3, 300)]
        assert values == [b"0", b"1", b"2"]
        assert consumer.committed([TopicPartition("t", 0)], 10)[0].offset < 0
