"""A process that only reads: it follows the log to `records`, and prints what it used, fifth by fifth."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures import Figures  # type: ignore[import-not-found,unused-ignore]

from sparktxn.consumer import Consumer

_SILENCE_S = 120.0


def main(uri: str, records: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": uri,
            "group.id": "soak",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.subscribe(["soak"])
    print(json.dumps(Figures.now(0)), flush=True)
    seen, heard_s = 0, time.monotonic()
    while seen < records:
        message = consumer.poll(1.0)
        if message is None:
            if time.monotonic() - heard_s > _SILENCE_S:
                raise SystemExit(f"no record for {_SILENCE_S} s after {seen} of {records}")
            continue
        error = message.error()
        if error is not None:
            raise SystemExit(str(error))
        heard_s = time.monotonic()
        seen += 1
        if seen % (records // 5) == 0:
            print(json.dumps(Figures.now(seen)), flush=True)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
