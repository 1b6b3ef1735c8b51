"""Runs programs for confluent-kafka on stores, unchanged: `install()`, or ``python -m sparktxn.compat program.py``.

Afterwards ``import confluent_kafka`` gives the clients of this library. If confluent-kafka is installed, its modules
that are written in Python (``aio``, ``serialization``, ``schema_registry``, ``avro``) run over them. So do programs
that use it, such as stream frameworks. If it is not installed, its names are here all the same, the clients of ``aio``
too, and what needs the package itself says so.
"""

from sparktxn.compat.clients import STORES_VARIABLE
from sparktxn.compat.installing import install

__all__ = ["STORES_VARIABLE", "install"]


def __dir__() -> list[str]:
    return sorted(__all__)
