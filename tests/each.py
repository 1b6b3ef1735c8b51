"""Cases of microseconds in one test: they all run, and the failure names each case that is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["each"]


def each(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the decorated test once for each of `cases`: the values of its parameters, as a tuple if it has several.

    A case with a fixture, a mark or a set-up of its own is one of `pytest.mark.parametrize`.

    Raises:
        AssertionError: cases fail; it names them all, and has the first error as its cause.
    """

    known = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        names = list(inspect.signature(test).parameters)
        if names[0] == "self":

            def of_class(self: Any) -> None:
                _run(test, known, names[1:], (self,))

            return _named(of_class, test)

        def alone() -> None:
            _run(test, known, names, ())

        return _named(alone, test)

    return decorate


def _named(wrapper: Callable[..., None], test: Callable[..., None]) -> Callable[..., None]:
    wrapper.__name__, wrapper.__qualname__, wrapper.__module__ = test.__name__, test.__qualname__, test.__module__
    wrapper.__doc__ = test.__doc__
    return wrapper


def _run(test: Callable[..., None], cases: list[Any], names: list[str], owner: tuple[Any, ...]) -> None:
    failures: dict[str, Exception] = {}
    for case in cases:
        values: Mapping[str, Any] = dict(zip(names, case if len(names) > 1 else (case,), strict=True))
        try:
            test(*owner, **values)
        except Exception as error:
            failures[", ".join(f"{name}={value!r:.200}" for name, value in values.items())] = error
    assert cases, "there is no case"
    if failures:
        lines = [f"{case}: {type(error).__name__}: {error}" for case, error in failures.items()]
        raise AssertionError("\n".join([f"{len(failures)} of {len(cases)} cases fail", *lines])) from next(
            iter(failures.values())
        )
