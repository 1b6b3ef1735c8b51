"""A transactional log on object storage, with Kafka's transactions and no broker."""
