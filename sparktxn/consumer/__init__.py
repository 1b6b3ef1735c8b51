"""Reading topics in confluent-kafka's shapes, and by columns."""

from sparktxn.consumer.client import Consumer

__all__ = ["Consumer"]
