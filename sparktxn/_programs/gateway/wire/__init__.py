"""Kafka's protocol as bytes: frames' messages, record batches, error codes. It knows no store."""
