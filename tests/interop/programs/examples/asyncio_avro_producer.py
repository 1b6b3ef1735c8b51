"""An awaited producer of records that the registry's awaited Avro serializer has made."""

import asyncio
import sys

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.aio import AIOProducer
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry._async.avro import AsyncAvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

BROKER = {"bootstrap.servers": sys.argv[1]}
SCHEMA = (
    '{"type": "record", "name": "Reading", "fields": [{"name": "id", "type": "int"}, {"name": "of", "type": "string"}]}'
)
admin = AdminClient(BROKER)
admin.create_topics([NewTopic("readings", 1, 1)])["readings"].result(20)


async def main() -> list:
    registry = AsyncSchemaRegistryClient.new_client({"url": "mock://asyncio"})
    serializer = await AsyncAvroSerializer(registry, schema_str=SCHEMA)
    producer = AIOProducer(BROKER)
    context = SerializationContext("readings", MessageField.VALUE)
    sent = []
    for number in range(3):
        value = await serializer({"id": number, "of": "rain"}, context)
        sent.append(await producer.produce("readings", value=value))
    await producer.flush()
    print([(await report).offset() for report in sent])
    await producer.close()


asyncio.run(main())
with Consumer({**BROKER, "group.id": "readings", "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe(["readings"])
    found = []
    while len(found) < 3:
        message = consumer.poll(1.0)
        if message is not None:
            found.append(message.value())
print([value[:1] for value in found], [len(value) for value in found])
