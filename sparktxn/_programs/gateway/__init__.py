"""A Kafka gateway: a server that speaks Kafka's protocol in front of a store. It needs the extra `gateway`."""
