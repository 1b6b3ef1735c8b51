"""The settings of the clients, by the names that librdkafka has for them."""
