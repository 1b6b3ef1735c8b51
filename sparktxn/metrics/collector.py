"""This process's figures for prometheus_client: the only module here that knows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, extra_to_install
from sparktxn.metrics.families import FAMILIES, Family
from sparktxn.metrics.process import PROCESS

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample
except ModuleNotFoundError as missing:
    raise ConfigurationError(
        f"figures for Prometheus need the package 'prometheus_client': {extra_to_install('metrics')}"
    ) from missing


class _ProcessCollector(Collector):
    """Collects the figures when it is asked; it keeps none."""

    def describe(self) -> Iterable[Metric]:
        """Return all names, so that a registry takes them once."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Return all figures of this process."""
        figures = PROCESS.figures()
        return [_metric(name, family, figures) for name, family in FAMILIES.items()]


def register_with(registry: CollectorRegistry | None) -> None:
    """Do what `sparktxn.metrics.register` does."""
    wanted = REGISTRY if registry is None else arguments.instance("registry", registry, CollectorRegistry)
    wanted.register(_ProcessCollector())


def _metric(name: str, family: Family, figures: dict[str, dict[tuple[str, ...], float]]) -> Metric:
    metric = Metric(name.removesuffix("_total"), family.meaning, family.kind)
    samples: list[Any] = metric.samples
    ends = {"_bucket": (*family.labels, "le"), "_count": family.labels, "_sum": family.labels}
    for end, labels in ends.items() if family.kind == "histogram" else {"": family.labels}.items():
        for values, figure in figures[name + end].items():
            samples.append(Sample(name + end, dict(zip(labels, values, strict=True)), figure))
    return metric
