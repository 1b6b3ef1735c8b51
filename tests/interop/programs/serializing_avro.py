"""SerializingProducer and DeserializingConsumer with the mock of the schema registry: Avro and JSON."""

from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import StringDeserializer, StringSerializer

BROKER = {"bootstrap.servers": "localhost:9092"}
AVRO = (
    '{"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}]}'
)
JSON = (
    '{"$schema": "http://json-schema.org/draft-07/schema#", "title": "User", "type": "object", '
    '"properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}'
)
registry = SchemaRegistryClient.new_client({"url": "mock://registry"})


def round_trip(topic, serializer, deserializer) -> list:
    AdminClient(BROKER).create_topics([NewTopic(topic, 1)])[topic].result()
    producer = SerializingProducer({**BROKER, "key.serializer": StringSerializer(), "value.serializer": serializer})
    failed = []
    for number in range(3):
        user = {"name": f"user-{number}", "age": number}
        producer.produce(topic, key=f"k{number}", value=user, on_delivery=lambda error, _: failed.append(error))
    producer.flush()
    assert failed == [None] * 3, failed
    settings = {"key.deserializer": StringDeserializer(), "value.deserializer": deserializer}
    consumer = DeserializingConsumer({**BROKER, **settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    messages = [consumer.poll(10.0) for _ in range(3)]
    consumer.close()
    return [(message.key(), message.value()["name"], message.value()["age"]) for message in messages]


print(round_trip("avro", AvroSerializer(registry, AVRO), AvroDeserializer(registry, AVRO)))
print(round_trip("json", JSONSerializer(JSON, registry), JSONDeserializer(JSON)))
