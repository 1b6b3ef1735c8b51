"""Figures of this process: its commits and their times, its requests to object stores, and its folds.

They are counted always, and cost about a microsecond for each commit. `figures()` returns them; `register()` gives them
to prometheus_client (extra `metrics`), and `trace()` makes each timed call a span of OpenTelemetry::

    from prometheus_client import start_http_server
    from sparktxn import metrics

    metrics.register()
    start_http_server(9400)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparktxn.metrics.families import FAMILIES, Family
from sparktxn.metrics.process import PROCESS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["FAMILIES", "Family", "figures", "register", "trace"]


def __dir__() -> list[str]:
    return sorted(__all__)


def figures() -> dict[str, dict[tuple[str, ...], float]]:
    """Return what this process has counted: for each name of FAMILIES the figures by the values of its labels.

    A forked child begins at 0. Of a histogram there are the samples of Prometheus: ``_bucket``, ``_sum``, ``_count``.
    """
    return PROCESS.figures()


def register(registry: CollectorRegistry | None = None) -> None:
    """Have a registry of prometheus_client collect the figures whenever it is asked; None is its default one.

    Raises:
        ConfigurationError: prometheus_client is not installed.
        TypeError: `registry` is none.
        ValueError: the registry has them already.
    """
    # Imported late: most processes have no use for it.
    from sparktxn.metrics.collector import register_with

    register_with(registry)


def trace(tracer_provider: Any = None) -> None:
    """Make each call that is timed a span of OpenTelemetry, as a child of the span that the caller is in.

    None is the provider that is set globally. Spans have the name of the call, as txnlog.commit_transaction,
    and the exception of a call that fails. No attribute has a key, a value or a setting.

    Raises:
        ConfigurationError: opentelemetry-api is not installed.
        TypeError: `tracer_provider` is none.
    """
    from sparktxn.metrics.tracing import tracer_of

    PROCESS.tracer = tracer_of(tracer_provider)
