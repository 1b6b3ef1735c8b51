"""RocketMQ's transactional messages: a message becomes visible if its local transaction commits.

The names are those of RocketMQ 4's clients; `sparktxn.halfmessage.rocketmq5` has those of RocketMQ 5::

    class Shop(TransactionListener):
        def execute_local_transaction(self, message, arg):
            return LocalTransactionState.COMMIT_MESSAGE if book(arg) else LocalTransactionState.ROLLBACK_MESSAGE

        def check_local_transaction(self, message):
            return LocalTransactionState.COMMIT_MESSAGE if is_booked(message.transaction_id) else …

    producer = TransactionMQProducer("shop", "/data/log")
    producer.set_transaction_listener(Shop())
    producer.start()
    producer.send_message_in_transaction(Message("orders", b"2 apples", keys="o-17"), order)

A half message is settled once: the first settlement wins, from the producer or from a check.
"""

from sparktxn.halfmessage.rocketmq4 import (
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    SendResult,
    SendStatus,
    TransactionListener,
    TransactionMQProducer,
    TransactionSendResult,
)

__all__ = [
    "LocalTransactionState",
    "Message",
    "MessageExt",
    "MessageQueue",
    "SendResult",
    "SendStatus",
    "TransactionListener",
    "TransactionMQProducer",
    "TransactionSendResult",
]


def __dir__() -> list[str]:
    return sorted(__all__)
