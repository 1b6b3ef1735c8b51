"""Writing records: the queue, the segments, the transaction."""

from sparktxn.producer.client import Producer
from sparktxn.producer.serializing import SerializingProducer
from sparktxn.producer.transactionstates import PreparedTransaction, TransactionPhase

__all__ = ["PreparedTransaction", "Producer", "SerializingProducer", "TransactionPhase"]
