"""The jars of Kafka's command line tools, of Kafka Streams with its examples, and of Spark's connector for Kafka."""

# ruff: noqa: E501

from __future__ import annotations

from typing import Final

from tests.interop.brokerjars import JARS as _BROKER
from tests.interop.brokerjars import KAFKA
from tests.interop.kafkatools import Jar

__all__ = ["SPARK", "STREAMS"]

STREAMS: Final = (
    *_BROKER,
    Jar("org.apache.kafka", "kafka-tools", KAFKA, "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c"),
    Jar("org.apache.kafka", "kafka-streams", KAFKA, "bd73f3805e116f711e8456ee89a8a5b43ff5dcf5a5bb865afae29deae89e7c4b"),
    Jar("org.apache.kafka", "kafka-streams-examples", KAFKA, "6463ef446d45504bf65fa4208f1b4bcce1c7559152f6f7294e2e1f3c08e28420"),
    Jar("org.rocksdb", "rocksdbjni", "10.1.3", "e7f925287d9fe2574fb7c7a86f7facaa9b8ab602a2eed0e598bf633528121498"),
)  # fmt: skip
SPARK: Final = (
    Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"),
    Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0", "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c"),
    Jar("org.apache.commons", "commons-pool2", "2.12.1", "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef"),
    *(jar for jar in _BROKER if jar.artifact == "kafka-clients"),
)  # fmt: skip
