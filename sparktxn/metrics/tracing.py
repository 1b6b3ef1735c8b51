"""Spans of OpenTelemetry for the calls that are timed: the only module that knows its package."""

from __future__ import annotations

from typing import Any

from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, extra_to_install

try:
    from opentelemetry import trace
except ModuleNotFoundError as missing:
    raise ConfigurationError(f"spans need the package 'opentelemetry-api': {extra_to_install('tracing')}") from missing


def tracer_of(tracer_provider: Any) -> Any:
    """Return the tracer of this package, of the provider that is set globally if it is None."""
    if tracer_provider is not None:
        arguments.instance("tracer_provider", tracer_provider, trace.TracerProvider)
    return trace.get_tracer("sparktxn", tracer_provider=tracer_provider)
