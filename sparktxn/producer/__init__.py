"""Writing records: the queue, the segments, the transaction."""

from sparktxn.producer.client import Producer
from sparktxn.producer.preparedstate import PreparedTransaction
from sparktxn.producer.serializing import SerializingProducer
from sparktxn.producer.states import TransactionPhase

__all__ = ["PreparedTransaction", "Producer", "SerializingProducer", "TransactionPhase"]
