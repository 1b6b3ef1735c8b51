"""Writing records: the queue, the segments, the transaction."""

from sparktxn.producer.client import Producer
from sparktxn.producer.states import TransactionState

__all__ = ["Producer", "TransactionState"]
