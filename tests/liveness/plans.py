"""Which clients a run has: those of three libraries, two of which are fetched, or of the one that is needed anyway."""

from __future__ import annotations

import os
from typing import Final

from tests.interop.brokerjars import JARS
from tests.interop.kafkatools import fetch_jars, java
from tests.interop.peers import python_with
from tests.liveness.clients import JARS_VARIABLE
from tests.liveness.run import Kind, Plan

__all__ = ["all_clients", "only_aiokafka"]

_CLIENT_JARS: Final = frozenset({"kafka-clients", "lz4-java", "snappy-java", "zstd-jni", "slf4j-api"})


def all_clients(blows: int, every_s: float, limit_s: float, *, member_s: float = 40.0, seed: int = 1) -> Plan:
    """Return a plan with producers of Java and of librdkafka, and members of librdkafka and aiokafka.

    Raises:
        CannotInstallError, OSError, AssertionError: packages, jars or Java cannot be had here.
    """
    java()
    jars = fetch_jars([jar for jar in JARS if jar.artifact in _CLIENT_JARS])
    return Plan(
        producers=(Kind("java", True), Kind("librdkafka", True), Kind("java", False), Kind("librdkafka", False)),
        members=("librdkafka", "librdkafka", "librdkafka", "aiokafka", "librdkafka"),
        blows=blows,
        every_s=every_s,
        limit_s=limit_s,
        ends_max=2,  # one as a gateway goes, and one as it comes back
        member_s=member_s,
        seed=seed,
        python=str(python_with("compat-test")),
        environment={JARS_VARIABLE: os.pathsep.join(map(str, jars))},
    )


def only_aiokafka(blows: int, every_s: float, limit_s: float, *, member_s: float = 40.0, seed: int = 1) -> Plan:
    """Return a plan with what the package needs itself."""
    return Plan(
        producers=(Kind("aiokafka", True), Kind("aiokafka", False)),
        members=("aiokafka",) * 3,
        blows=blows,
        every_s=every_s,
        limit_s=limit_s,
        member_s=member_s,
        seed=seed,
    )
