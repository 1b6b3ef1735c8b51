"""Avro, JSON and Protobuf: a producer with a serializer, a consumer with a deserializer, and the registry's mock."""

import sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, StringSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

BROKER = {"bootstrap.servers": sys.argv[1]}
USERS = [("ada", 7, "green"), ("bo", 0, "red"), ("cy", 12, "")]
AVRO = """{"type": "record", "name": "User", "fields": [
    {"name": "name", "type": "string"}, {"name": "number", "type": "long"}, {"name": "colour", "type": "string"}]}"""
JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "User", "type": "object", "properties": {
    "name": {"type": "string"}, "number": {"type": "number"}, "colour": {"type": "string"}}, "required": ["name"]}"""

file = descriptor_pb2.FileDescriptorProto(name="user.proto", package="shop", syntax="proto3")
described = file.message_type.add(name="User")
for place, (name, kind) in enumerate((("name", "STRING"), ("number", "INT64"), ("colour", "STRING")), 1):
    described.field.add(name=name, number=place, type=f"TYPE_{kind}", label="LABEL_OPTIONAL")
descriptor_pool.Default().Add(file)
ProtobufUser = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName("shop.User"))


class User:
    def __init__(self, name, number, colour):
        self.name, self.number, self.colour = name, number, colour


def as_dict(user, context):
    return vars(user)


def from_dict(found, context):
    return None if found is None else User(**found)


registry = SchemaRegistryClient.new_client({"url": "mock://examples"})
KINDS = {
    "avro": (AvroSerializer(registry, AVRO, as_dict), AvroDeserializer(registry, AVRO, from_dict), User),
    "json": (JSONSerializer(JSON, registry, as_dict), JSONDeserializer(JSON, from_dict), User),
    "protobuf": (
        ProtobufSerializer(ProtobufUser, registry, {"use.deprecated.format": False}),
        ProtobufDeserializer(ProtobufUser, {"use.deprecated.format": False}),
        lambda name, number, colour: ProtobufUser(name=name, number=number, colour=colour),
    ),
}
string = StringSerializer("utf_8")
for kind, (serializer, deserializer, make) in KINDS.items():
    admin = AdminClient(BROKER)
    admin.create_topics([NewTopic(kind, 1, 1)])[kind].result(20)
    producer = Producer(BROKER)
    for name, number, colour in USERS:
        producer.produce(
            topic=kind,
            key=string(name),
            value=serializer(make(name, number, colour), SerializationContext(kind, MessageField.VALUE)),
            on_delivery=lambda error, message: print(error, message.topic(), message.partition(), message.offset()),
        )
    producer.flush(20)
    consumer = Consumer({**BROKER, "group.id": kind, "auto.offset.reset": "earliest"})
    consumer.subscribe([kind])
    count = 0
    while count < len(USERS):
        message = consumer.poll(1.0)
        if message is None:
            continue
        user = deserializer(message.value(), SerializationContext(message.topic(), MessageField.VALUE))
        print(kind, message.key(), user.name, user.number, user.colour, len(message.value()))
        count += 1
    consumer.close()
