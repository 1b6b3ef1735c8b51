"""What a user of the package finds in it: the names of the API, and nothing that its modules need themselves."""

from __future__ import annotations

import inspect

import sparktxn


def test_the_names_that_a_shell_completes_are_the_api() -> None:
    assert dir(sparktxn) == sorted(sparktxn.__all__)
    assert not [name for name in dir(sparktxn) if inspect.ismodule(getattr(sparktxn, name))]
