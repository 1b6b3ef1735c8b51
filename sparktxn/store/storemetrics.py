"""A store's figures as a page of Prometheus: the only module here that knows prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values import arguments
from sparktxn.errors import KafkaException, extra_to_install
from sparktxn.metrics.families import STORE_FAMILIES
from sparktxn.store import Store
from sparktxn.store.storefigures import Figures, StoreFigures
from sparktxn.store.writeproblem import write_problem

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"a store's figures need the package {missing.name!r}: {extra_to_install('metrics')}", name=missing.name
    ) from missing

__all__ = ["SCRAPE_TIMEOUT_S", "StoreMetrics"]


def __dir__() -> list[str]:
    return sorted(__all__)


SCRAPE_TIMEOUT_S: Final = 10.0
"""Prometheus' own time-out of a scrape, where none is set."""


class StoreMetrics(Collector):
    """The figures of an open store, read anew whenever they are asked for. Safe for several threads.

    Args:
        store: the store; it must stay open.
        timeout_s: how long the store may take for a scrape; None means no limit.

    Raises:
        TypeError, ConfigurationError: an argument is something else.
    """

    def __init__(self, store: Store, timeout_s: float | None = SCRAPE_TIMEOUT_S) -> None:
        self._log = arguments.instance("store", store, Store).log
        self._figures = StoreFigures(store)
        self._timeout_s = arguments.timeout_s("timeout_s", timeout_s)
        self.registry = CollectorRegistry()
        """Has these figures alone; others may be registered in it."""
        self.registry.register(self)

    def __repr__(self) -> str:
        return f"StoreMetrics({self._log.objects.uri!r})"

    def problem(self) -> str | None:
        """Return why the store cannot be used as it should, for a server's page of health; None if it can.

        It is read, and nothing is written: of a remote store only failed writes of this process say that it takes none.
        """
        try:
            with self._log.within(self._timeout_s):
                self._log.refresh()
        except KafkaException as error:
            return f"the store cannot be read: {error.args[0].name()}"
        problem = write_problem(self._log, tries=False)
        return None if problem is None else f"the store takes no writes: {problem}"

    def page(self, accept: str | None = None) -> tuple[bytes, str]:
        """Return the page and its content type, for a server's own route.

        `accept` is the request's header of that name: it chooses between Prometheus' text and OpenMetrics. The store is
        read on the caller's thread.
        """
        encode, content_type = choose_encoder(arguments.text_or_none("accept", accept) or "")
        return encode(self.registry), content_type

    def wsgi(self) -> Callable[..., Iterable[bytes]]:
        """Return an application that answers each path with the page, for a server of WSGI."""
        app: Callable[..., Iterable[bytes]] = make_wsgi_app(self.registry)
        return app

    def describe(self) -> Iterable[Metric]:
        """Return all names without reading the store, as registering asks for them."""
        return _metrics({})

    def collect(self) -> Iterable[Metric]:
        """Return the figures; of a store that cannot be read only that it is not up."""
        clock = self._log.clock
        began_s = clock.monotonic_s()
        figures: Figures = {}
        try:
            with self._log.within(self._timeout_s):
                figures = self._figures.read()
        except KafkaException as error:
            log_event("exporter_scrape_failed", error=error)
        if figures:
            figures["txnlog_store_writable"] = [((), float(write_problem(self._log, tries=False) is None))]
        figures["txnlog_up"] = [((), float(bool(figures)))]
        figures["txnlog_scrape_duration_seconds"] = [((), clock.monotonic_s() - began_s)]
        return [metric for metric in _metrics(figures) if metric.samples]


def _metrics(figures: Figures) -> list[Metric]:
    found = []
    for name, family in STORE_FAMILIES.items():
        metric = Metric(name.removesuffix("_total"), family.meaning, family.kind)
        samples: list[Any] = metric.samples
        labels = family.labels
        samples += [
            Sample(name, dict(zip(labels, values, strict=True)), value) for values, value in figures.get(name, ())
        ]
        found.append(metric)
    return found
