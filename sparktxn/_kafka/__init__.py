"""The shapes that programs for confluent-kafka know: messages, metadata, what administration takes and gives."""
