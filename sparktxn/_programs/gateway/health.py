"""The gateway's pages for machines: whether it serves, and its figures for Prometheus. It knows prometheus_client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import TimeoutError as NotInTime
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

from sparktxn import metrics
from sparktxn._foundation.process.background import start_thread
from sparktxn._foundation.process.clock import Deadline
from sparktxn._foundation.process.listening import (
    AnsweredHosts,
    Application,
    Endpoint,
    address_of,
    listening,
    wsgi_server,
)
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.requestfigures import FAMILIES, Samples
from sparktxn.errors import ConfigurationError, KafkaException, extra_to_install
from sparktxn.store.writeproblem import write_problem

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample
except ModuleNotFoundError as missing:
    raise ConfigurationError(
        f"--http needs the package 'prometheus_client': {extra_to_install('metrics')}"
    ) from missing

_ANSWER_S: Final = 5.0
"""So long may the gateway, and its store, take to say that they are well."""
_TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)


@contextmanager
def health_pages(
    broker: Broker, loop: asyncio.AbstractEventLoop, endpoint: Endpoint, hosts: AnsweredHosts
) -> Iterator[str]:
    """Serve the pages of a gateway for some hosts while the body runs, which gets their address.

    Raises:
        ConfigurationError: it cannot listen there.
    """
    host, port = endpoint
    with ExitStack() as stack:
        listener = stack.enter_context(closing(listening(host, port, "--http")))
        server = wsgi_server(_pages(broker, loop), host, listener, hosts)
        start_thread("sparktxn-gateway-pages", server.serve_forever, finish=server.shutdown, give_up=_nothing)
        stack.callback(server.shutdown)
        yield address_of(host, listener)


def _nothing() -> None:
    return None


def _pages(broker: Broker, loop: asyncio.AbstractEventLoop) -> Application:
    registry = CollectorRegistry()
    metrics.register(registry)
    registry.register(_Gateway(broker, loop))
    figures: Application = make_wsgi_app(registry)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            return figures(environ, start_response)
        if environ["PATH_INFO"] != "/healthz":
            start_response("404 Not Found", list(_TEXT))
            return [b"expected /healthz or /metrics\n"]
        problem = _problem(broker, loop)
        start_response("200 OK" if problem is None else "503 Service Unavailable", list(_TEXT))  # a server adds to it
        return [f"{problem or 'ok'}\n".encode()]

    return application


def _problem(broker: Broker, loop: asyncio.AbstractEventLoop) -> str | None:
    """Return why this gateway cannot serve clients now; None if it can."""
    if broker.log_end.has_ended:
        return "the gateway ends"
    try:
        _newest_entry(broker, loop)
    except NotInTime:
        return f"the gateway, or its store, has not answered for {_ANSWER_S:.0f} s"
    except KafkaException as error:
        return f"the store cannot be read: {error.args[0].name()}"
    with Deadline(broker.log.clock, _ANSWER_S).governs():
        problem = write_problem(broker.log, tries=True)
    return None if problem is None else f"the store takes no writes: {problem}"


def _newest_entry(broker: Broker, loop: asyncio.AbstractEventLoop) -> int:
    """Return the newest entry, asked for as a client's request would: by the loop, on a thread for calls."""
    asked = asyncio.run_coroutine_threadsafe(broker.calls.run(broker.log.refresh), loop)
    try:
        return asked.result(_ANSWER_S)
    finally:
        asked.cancel()


class _Gateway(Collector):
    """The figures of a gateway, collected when they are asked for."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        """Return all names without figures, as registering asks for them."""
        return [_metric(name, {}) for name in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """Return all figures; of a store that does not answer none of its log."""
        broker = self._broker
        samples = broker.figures.samples()
        samples["txnlog_gateway_connections"] = {(): len(broker.clients)}
        samples["txnlog_gateway_request_memory_bytes"] = {(): broker.memory.held_bytes}
        samples["txnlog_gateway_decompressed_memory_bytes"] = {(): broker.decompressed.held_bytes}
        samples["txnlog_gateway_open_transactions"] = {(): broker.transactions.open_count}
        samples["txnlog_gateway_transaction_memory_bytes"] = {(): broker.transactions.memory_bytes}
        known = broker.log.entry
        try:
            newest = _newest_entry(broker, self._loop)
        except (NotInTime, KafkaException):
            return [_metric(name, samples) for name in FAMILIES]
        samples["txnlog_gateway_log_entry"] = {(): newest}
        samples["txnlog_gateway_log_lag_entries"] = {(): newest - known}
        return [_metric(name, samples) for name in FAMILIES]


def _metric(name: str, samples: Samples) -> Metric:
    family = FAMILIES[name]
    metric = Metric(name.removesuffix("_total"), family.meaning, family.kind)
    found: list[Any] = metric.samples
    ends = {"_bucket": (*family.labels, "le"), "_count": family.labels, "_sum": family.labels}
    for end, labels in ends.items() if family.kind == "histogram" else {"": family.labels}.items():
        for values, figure in samples.get(name + end, {}).items():
            found.append(Sample(name + end, dict(zip(labels, values, strict=True)), figure))
    return metric
