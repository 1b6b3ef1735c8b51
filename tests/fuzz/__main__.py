"""Fuzzes the decoders, guided by coverage: python -m tests.fuzz --seconds 60 --decoder entry.

Each decoder gets a process of its own, with bounds on memory and on the time per input, and its share of the seconds.
An input that raises anything but the store's own errors is kept and reported (``fuzz-found/``). So is one that takes
longer than TIMEOUT_S or more than MEMORY_MB. Once fixed it belongs into ``tests/fuzz/pinned/<decoder>/``, which `make
test` runs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

TIMEOUT_S: Final = 10
MEMORY_MB: Final = 3_000
LENGTH_MAX: Final = 1 << 17
FOUND: Final = Path("fuzz-found")


def main() -> int:
    if "--only" not in sys.argv:
        # In the process that fuzzes nothing may be imported before it is instrumented.
        from tests.fuzz.decoders import DECODERS

        names = sorted(DECODERS)
    else:
        names = []
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all decoders together")
    parser.add_argument("--decoder", action="append", choices=names, help="all if not given")
    parser.add_argument("--corpus", type=Path, help="keeps the inputs that reached new code in a folder per decoder")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations; 0 is a new one")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        _fuzz(arguments.only, arguments.corpus, arguments.seconds, arguments.seed)
    chosen = arguments.decoder or names
    found = 0
    for name in chosen:
        seconds = max(1, arguments.seconds // len(chosen))
        found += _in_a_process(name, seconds, arguments.corpus, arguments.seed)
    return 1 if found else 0


def _in_a_process(name: str, seconds: int, corpus: Path | None, seed: int) -> int:
    """Runs one decoder's fuzzer and prints what it did; 1 if it has found something."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = (corpus if corpus is not None else Path(scratch)) / name
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz", "--only", name, "--corpus", str(folder)]
        command += ["--seconds", str(seconds), "--seed", str(seed)]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    inputs = re.search(r"stat::number_of_executed_units: (\d+)", run.stderr)
    speed = re.search(r"stat::average_exec_per_sec: *(\d+)", run.stderr)
    told = f"{inputs[1] if inputs else '?'} inputs, {speed[1] if speed else '?'} a second"
    print(f"{name:<12}{told}{'' if run.returncode == 0 else '; FOUND SOMETHING'}", flush=True)
    if run.returncode:
        print(run.stdout[-4000:] + run.stderr[-8000:])
    return 1 if run.returncode else 0


def _fuzz(name: str, corpus: Path, seconds: int, seed: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["sparktxn", "pyspark_txnlog", "json"], enable_loader_override=False):
        from tests.fuzz.decoders import DECODERS
        from tests.fuzz.mutations import mutated
    decoder = DECODERS[name]
    FOUND.mkdir(exist_ok=True)
    for number, data in enumerate(decoder.seeds()):
        (corpus / f"seed-{number}").write_bytes(data)

    def try_one(data: bytes) -> None:
        with suppress(*decoder.errors):
            decoder.decode(data)

    def mutate(data: bytes, length_max: int, number: int) -> Any:
        random = Random(number)
        if random.random() < 0.5:
            return atheris.Mutate(data, length_max)
        return mutated(decoder, data, random)[:length_max]

    flags = [f"-max_total_time={seconds}", f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}"]
    flags += [f"-max_len={LENGTH_MAX}", "-print_final_stats=1", f"-seed={seed}", f"-artifact_prefix={FOUND}/{name}-"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], try_one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "scala-free-python-datasource"))
    sys.exit(main())
