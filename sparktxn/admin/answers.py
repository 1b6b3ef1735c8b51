"""How an administrator's calls are answered: by futures that are done when the call returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial, wraps
from typing import Any, Final, ParamSpec, Self, TypeVar

from sparktxn._engine.log.log import Log
from sparktxn._foundation.process.background import without_frames
from sparktxn._foundation.process.clock import Clock, SystemClock, in_time
from sparktxn._foundation.process.handles import ForkGuard
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn._foundation.values.quantities import html_table
from sparktxn._kafka.settings.client import AdminSettings, settings_of_keywords
from sparktxn._kafka.unsupported import WithoutCredentials
from sparktxn.errors import KafkaException
from sparktxn.store import Store

Item = TypeVar("Item")
Key = TypeVar("Key")
P = ParamSpec("P")

REQUEST_TIMEOUT_S: Final = 60.0

_YES_OR_NO: Final = frozenset({"include_authorized_operations", "require_stable", "validate_only"})


def clock_of(client: AnsweringClient) -> Clock:
    """Return the clock of the client's store, once it is open."""
    return client._store.log.clock if client._store is not None else SystemClock()


def answered(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a call of an administrator: `request_timeout` bounds it, and what many calls take by name is checked.

    Raises (the decorated call):
        TypeError: a time-out is not a number, or an argument is not True or False.
        ConfigurationError: a time-out is NaN.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        for name in _YES_OR_NO & kwargs.keys():
            kwargs[name] = arguments.boolean(name, kwargs[name])
        arguments.timeout_s("operation_timeout", kwargs.get("operation_timeout"))
        return function(*args, **kwargs)

    return in_time("request_timeout", clock_of)(call)


class AnsweringClient(WithoutCredentials):
    """A client that opens its store when it is first asked for something."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        """Check the settings; nothing is opened yet. Keyword arguments are settings with ``_`` for ``.``.

        Raises:
            ConfigurationError: a setting is unknown, or the store's address is missing.
        """
        given = arguments.mapping("config", config) | settings_of_keywords(settings)
        chosen = AdminSettings.parse(given)
        self._uri, self._options = chosen.uri, chosen.store_options
        self._fork = ForkGuard()
        self._store: Store | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._uri!r})"

    def _repr_html_(self) -> str:
        return html_table(repr(self), ("store", "closed"), [(self._uri, self._closed)])

    def close(self) -> None:
        """Give the store back; calling twice is harmless."""
        self._closed = True
        if self._store is not None:
            self._store.close()
            self._store = None

    def __len__(self) -> int:
        """Return 0: no request waits, as each is answered by the call that makes it."""
        return 0

    def __bool__(self) -> bool:
        """Return True, always."""
        return True

    @in_time("timeout", clock_of)
    def cluster_id(self, timeout: float | None = -1.0) -> str:
        """Return the id that the store was created with; `timeout` is in seconds.

        Raises:
            StoreNotFound: there is no store.
        """
        self._check()
        return self._log().store_id

    def poll(self, timeout: float | None = None) -> int:
        """Return 0: nothing waits to be called back."""
        self._check()
        arguments.timeout_s("timeout", timeout)
        return 0

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("AdminClient closed")
        self._fork.check("admin client")

    def _log(self, *, create: bool = False) -> Log:
        if self._store is None:
            self._store = Store.open(self._uri, options=self._options, create=create)
        return self._store.log

    def _refreshed(self) -> Log:
        self._check()
        log = self._log()
        log.refresh()
        return log

    def _answer(self, call: Callable[[], Result]) -> Future[Result]:
        self._check()
        future: Future[Result] = Future()
        try:
            future.set_result(call())
        except KafkaException as error:
            future.set_exception(without_frames(error))
        except Exception as error:  # noqa: BLE001 - the future carries it to whoever asks
            future.set_exception(error)
        return future

    def _each(
        self, items: Iterable[Item], call: Callable[[Item], Result], key: Callable[[Item], Any] = lambda item: item
    ) -> dict[Any, Future[Result]]:
        self._check()
        return {key(item): self._answer(partial(call, item)) for item in items}

    def _together(
        self, keys: Sequence[Key], call: Callable[[], Sequence[Result | KafkaException]]
    ) -> dict[Key, Future[Result]]:
        """Return the outcomes of one call for all `keys`, in their order; each has the error of a call that fails."""
        self._check()
        outcomes = self._answer(call)
        error = outcomes.exception()
        answers: Sequence[Any] = [error] * len(keys) if error is not None else outcomes.result()
        found: dict[Key, Future[Result]] = {}
        for key, answer in zip(keys, answers, strict=True):
            future = found[key] = Future()
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        return found


def list_of(name: str, given: object, kind: type[Item]) -> list[Item]:
    """Return a list that is not empty, of `kind`.

    Raises:
        TypeError: not a list, or something in it is not a `kind`.
        ValueError: the list is empty.
    """
    found = arguments.items(name, given, kind)
    if not found:
        raise ValueError(f"{name} is empty: expected a list of {kind.__name__}")
    return found


def names_of(name: str, given: object) -> list[str]:
    """Return a list of names that is not empty."""
    return arguments.identifiers(name, list_of(name, given, str))
