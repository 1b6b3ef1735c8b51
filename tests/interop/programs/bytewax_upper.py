"""Bytewax: a flow from a topic to another."""

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = {"bootstrap.servers": "localhost:9092"}
made = AdminClient(BROKER).create_topics([NewTopic("lower", 2), NewTopic("upper", 2)])
for future in made.values():
    future.result()
producer = Producer(BROKER)
for number in range(20):
    producer.produce("lower", f"value-{number}", f"k{number}")
producer.flush()

flow = Dataflow("upper")
source = kop.input("source", flow, brokers=["localhost:9092"], topics=["lower"], tail=False)
raised = op.map("upper", source.oks, lambda message: KafkaSinkMessage(message.key, message.value.upper()))
kop.output("sink", raised, brokers=["localhost:9092"], topic="upper")
run_main(flow)

reader = Consumer({**BROKER, "group.id": "check", "auto.offset.reset": "earliest"})
reader.subscribe(["upper"])
values = []
while (message := reader.poll(3.0)) is not None:
    values.append(message.value().decode())
reader.close()
print(sorted(values) == sorted(f"VALUE-{number}" for number in range(20)), len(values))
