"""Runs the cases with confluent-kafka on a broker, or with this library's clients on a store.

    python -m tests.interop.differential.program --out FILE --address HOST:PORT [--store FOLDER] [--only NAME]...

With a store, `import confluent_kafka` gives this library's clients, and the address means the store.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import threading
import time
import traceback
import uuid
from pathlib import Path

MODULES = ("producing", "transactions", "consuming", "groups", "administration", "names")
THREADS = 8
CASE_S = 60.0
"""How long a case may take: what the real client leaves waiting must not hold the others."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--store")
    parser.add_argument("--only", action="append")
    given = parser.parse_args()
    if given.store:
        compat = importlib.import_module("sparktxn.compat")
        compat.install(stores=given.store)
    run_id = uuid.uuid4().hex[:6]
    for module in MODULES:
        importlib.import_module(f"tests.interop.differential.{module}")
    kit = importlib.import_module("tests.interop.differential.kit")
    kit.Kit(given.address, f"first-{run_id}").topic()  # makes the store, and waits until the broker answers

    free = threading.Semaphore(THREADS)
    verdicts: dict[str, object] = {}

    def run(name: str) -> None:
        world = kit.Kit(given.address, f"{name}-{run_id}")
        try:
            verdicts[name] = kit.plain(kit.CASES[name](world))
            world.close()
        except Exception:
            verdicts[name] = ["the case itself failed", traceback.format_exc()]
        finally:
            free.release()

    threads = {}
    for name in given.only or list(kit.CASES):
        free.acquire(timeout=CASE_S)
        threads[name] = threading.Thread(target=run, args=[name], daemon=True)
        threads[name].start()
    end = time.monotonic() + CASE_S
    for name, thread in threads.items():
        thread.join(max(0.0, end - time.monotonic()))
        verdicts.setdefault(name, "the case does not end")
    Path(given.out).write_text(json.dumps(verdicts, indent=1))
    sys.stdout.flush()
    os._exit(0)  # clients that a case has left waiting must not hold the process


if __name__ == "__main__":
    main()
