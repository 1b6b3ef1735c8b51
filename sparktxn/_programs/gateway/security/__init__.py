"""Which clients a gateway answers: users and their passwords, Kafka's SASL mechanisms, and TLS."""
