"""``python -m sparktxn.compat [--stores STORES] program.py arguments…``, or ``-m module arguments…``."""

from __future__ import annotations

import os
import runpy
import sys
from typing import Final

from sparktxn.compat.clients import STORES_VARIABLE
from sparktxn.compat.installing import install
from sparktxn.errors import ConfigurationError

_USAGE: Final = f"""\
usage: python -m sparktxn.compat [--stores STORES] program.py [arguments…]
       python -m sparktxn.compat [--stores STORES] -m module [arguments…]

Runs a program for confluent-kafka on a store. STORES is one store's address, or host:port=store,… for several
brokers; without it the environment variable {STORES_VARIABLE} says it. A program that has a store's address in
bootstrap.servers needs neither."""


def main(arguments: list[str]) -> None:
    """Run a program as ``__main__``, with `arguments` as they follow ``python -m sparktxn.compat``.

    Raises:
        SystemExit: with the usage, or what the program raises.
    """
    stores = None
    if arguments and arguments[0].startswith("--stores"):
        option, separator, stores = arguments.pop(0).partition("=")
        if option != "--stores" or (not separator and not arguments):
            sys.exit(_USAGE)
        stores = stores if separator else arguments.pop(0)
    if not arguments or arguments == ["-m"] or (arguments[0].startswith("-") and arguments[0] != "-m"):
        sys.exit(_USAGE)
    try:
        install(stores)
    except ConfigurationError as error:
        sys.exit(f"error: {error}")
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(arguments[0]):
        sys.exit(f"error: there is no program {arguments[0]!r}\n{_USAGE}")
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
