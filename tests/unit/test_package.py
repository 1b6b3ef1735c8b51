"""What a user of the package finds in it: the names of the API, and nothing that its modules need themselves."""

from __future__ import annotations

import inspect
import re

import sparktxn
from sparktxn import Consumer, Producer, Store
from sparktxn.admin import AdminClient
from sparktxn.aio import AIOConsumer, AIOProducer
from tests.each import each


def test_the_names_that_a_shell_completes_are_the_api() -> None:
    assert dir(sparktxn) == sorted(sparktxn.__all__)
    assert not [name for name in dir(sparktxn) if inspect.ismodule(getattr(sparktxn, name))]


REFUSED = {"alter_user_scram_credentials", "create_acls", "delete_acls", "describe_acls", "elect_leaders"}
REFUSED |= {"describe_user_scram_credentials"}
"""What raises _NOT_IMPLEMENTED, whatever it is given."""


@each([AIOConsumer, AIOProducer, AdminClient, Consumer, Producer, Store])
def test_parameters_are_described_by_the_call_or_by_its_class(kind: type) -> None:
    of_class = inspect.getdoc(kind) or ""
    missing = []
    for name, call in inspect.getmembers(kind, callable):
        if name.startswith("_") or name in REFUSED:
            continue
        text = f"{inspect.getdoc(call)}\n{of_class}"
        named = [one for one in inspect.signature(call).parameters if one not in ("self", "settings")]
        missing += [f"{name}({one})" for one in named if not re.search(rf"`{one}`|^\s*{one}: ", text, re.MULTILINE)]
    assert missing == []
