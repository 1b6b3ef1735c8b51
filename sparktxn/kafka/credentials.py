"""The call by which programs renew the password of a broker's user: checked, and without effect."""

from __future__ import annotations

from sparktxn.process.fork import NoCopies
from sparktxn.values import arguments

__all__ = ["WithoutCredentials"]


class WithoutCredentials(NoCopies):
    """A client of a store: its credentials are ``storage.*`` settings, or the machine's own."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Check `username` and `password`, and change nothing: a store has credentials of its own.

        Raises:
            TypeError: one is not a str; no value is shown.
            RuntimeError: the client is closed.
        """
        self._check()
        arguments.text("username", username, secret=True)
        arguments.text("password", password, secret=True)

    def _check(self) -> None:
        raise NotImplementedError
