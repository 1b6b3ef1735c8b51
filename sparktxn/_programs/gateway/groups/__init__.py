"""Groups at a gateway: members of Kafka's three kinds of groups in the log's own ones."""
