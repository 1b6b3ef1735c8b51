"""Errors of this package as users see them: one line that says what is wrong, without a traceback in front of it.

Spark shows the text that its Python worker sends. The worker leaves the traceback out if the environment variable
SPARK_HIDE_TRACEBACK is set when an error arrives there. It is set for errors of sparktxn, which name the fix. Others
keep their traceback: it is what the finder of a defect needs.

Of a function for `foreachBatch`, Spark shows the traceback in front of the text. There such errors, and those of Spark,
leave out what frames of this package they have passed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction
from typing import Any, Final, ParamSpec, TypeVar

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
_OWN_VALUE: Final = "1 (pyspark_txnlog)"
"""Any text hides the traceback; this one says who has set it."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)


def one_line_errors(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Make Spark show errors of sparktxn that leave `function`, or the iterator that it returns, in one line."""

    @wraps(function)
    def call(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        _restore()
        try:
            result = function(*arguments, **named)
        except Exception as error:
            _hide(error)
            raise
        _restore()
        return _guarded(result) if isinstance(result, Iterator) else result  # type: ignore[return-value]

    return call


def with_one_line_errors(class_: _Class) -> _Class:
    """Do the same for the public methods that `class_` defines."""
    for name, member in list(vars(class_).items()):
        if isfunction(member) and not name.startswith("_"):
            setattr(class_, name, one_line_errors(member))
    return class_


def without_frames(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Make errors of sparktxn and of Spark leave `function` without the frames that they have passed in it."""

    @wraps(function)
    def call(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        from pyspark.errors import PySparkException

        from sparktxn.errors import KafkaException

        try:
            return function(*arguments, **named)
        except (KafkaException, PySparkException) as error:
            raise error.with_traceback(None) from error.__cause__

    return call


def _guarded(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        while True:
            _restore()
            try:
                row = next(rows)
            except StopIteration:
                return
            except Exception as error:
                _hide(error)
                raise
            _restore()
            yield row
    finally:
        close = getattr(rows, "close", None)
        if close is not None:
            close()


def _hide(error: Exception) -> None:
    # Imported here: Spark imports this package only to learn its name.
    from sparktxn.errors import KafkaException

    if isinstance(error, KafkaException):
        os.environ.setdefault(_HIDE, _OWN_VALUE)


def _restore() -> None:
    # A worker that lives on must not hide what comes later.
    if os.environ.get(_HIDE) == _OWN_VALUE:
        del os.environ[_HIDE]
