"""What answers each of Kafka's requests, a module for each subject."""
