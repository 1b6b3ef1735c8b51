"""Runs a script whose process dies, by SIGKILL, at a named operation of its object store.

``python -m tests.crash.die_at_operation put_if_absent _log/0 2 after SCRIPT ARGUMENT…`` dies after the second
put-if-absent of a name that begins with ``_log/0``. The log has the entry, and the process never gets the answer.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from typing import Any

from sparktxn._engine.objectstore.local import LocalStore


def arm(verb: str, prefix: str, count: int, when: str) -> None:
    """Makes the `count`-th operation of that kind the last one of this process, `when` ``before`` or ``after`` it."""
    original = getattr(LocalStore, verb)
    left = count

    def deadly(self: LocalStore, name: str, *arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= name.startswith(prefix)
        dies = name.startswith(prefix) and left == 0
        if dies and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(self, name, *arguments, **named)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(LocalStore, verb, deadly)


if __name__ == "__main__":
    _, verb, prefix, count, when, script, *arguments = sys.argv
    arm(verb, prefix, int(count), when)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
