"""Reading topics in confluent-kafka's shapes, and by columns."""

from sparktxn.consumer.client import Consumer
from sparktxn.consumer.deserializing import DeserializingConsumer

__all__ = ["Consumer", "DeserializingConsumer"]
