"""The main job on real data: 336,776 flights through Spark, two kills, and a count of each flight.

``make demo`` runs it. Its driver (flights/job.py) is a process of its own. It is killed once at a random moment, and
once inside a commit, when the log has the micro-batch and Spark does not know. Each time another driver is ready to go
on. What is in the store at the end is read by Spark, and by a reader that has only `json` and `pyarrow`
(flights/independent_reader.py).
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from flights import chart, dataset, proof
from flights.watch import Driver, Watch
from rich.console import Console
from rich.table import Table

from sparktxn import Store

PARTITIONS = 6
KILL_AT_COMMIT = 3
"""The second driver dies in its third commit."""
KILL_BETWEEN = (0.15, 0.45)
"""The first driver dies when this part of the flights is split, about."""
COMMANDS = (
    ("topics", "list"),
    ("log", "-n", "3"),
    ("transactions", "list"),
    ("offsets", "late"),
    ("consume", "-t", "late", "-o", "-1", "-e", "-f", "%t [%p] at %o: %s\\n"),
    ("verify", "--no-records"),
)
"""What the demo shows of the store at the end."""


def main() -> int:
    """Run the demo, and return 0 if every figure is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="the folder to use; emptied first")
    parser.add_argument("--seed", type=int, help="for the moment of the first kill (default: another each time)")
    arguments = parser.parse_args()
    console = Console()
    folder = arguments.output.resolve()
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "input").mkdir(parents=True)
    store = Store.open(str(folder / "store"), create=True)
    for topic in proof.TOPICS:
        store.create_topic(topic, PARTITIONS)
    seed = arguments.seed if arguments.seed is not None else random.randrange(1_000_000)
    share = random.Random(seed).uniform(*KILL_BETWEEN)

    with Driver(folder) as first:  # it prepares while the flights are loaded
        flights = dataset.load()
        dataset.write_files(flights, folder / "input")
        with Watch(store, console, total=flights.num_rows) as watch:
            kills = run_through_two_kills(folder, first, watch, int(share * flights.num_rows))
    console.print()
    report = proof.prove(folder, flights, kills)
    chart.draw(folder / "flights.png", watch.samples, watch.kills, flights)
    seconds = time.monotonic() - started
    print_report(console, report, folder, seconds, seed)
    print_paths(console, folder / "store")
    show_store(console, folder / "store")
    return 0 if all(check.right for check in report) else 1


def run_through_two_kills(folder: Path, first: Driver, watch: Watch, kill_after: int) -> list[proof.Kill]:
    """Run three drivers: one killed at a random moment, one inside a commit, one to the end."""
    first.go()
    watch.until(first, f"driver 1, to be killed after about {kill_after:,} flights", lambda rows: rows > 0)
    with Driver(folder, kill_at_commit=KILL_AT_COMMIT) as second:
        watch.until(first, "driver 2 prepares", lambda rows: rows >= kill_after)
        first.kill()
        watch.killed("SIGKILL at a random moment")
        kills = [proof.observe(folder)]
        second.go()
        with Driver(folder) as third:
            watch.until(second, "driver 2, which will die inside a commit", lambda rows: False)
            watch.killed("SIGKILL inside a commit")
            kills.append(proof.observe(folder))
            third.go()
            watch.until(third, "driver 3, to the end", lambda rows: False)
    return kills


def print_report(console: Console, report: list[proof.Check], folder: Path, seconds: float, seed: int) -> None:
    """Print the table at the end."""
    table = Table(title="Proof", title_justify="left")
    for column in ("what", "found", "expected", ""):
        table.add_column(column, justify="right" if column in ("found", "expected") else "left")
    for check in report:
        mark = "[green]right[/]" if check.right else "[bold red]WRONG[/]"
        table.add_row(check.what, f"{check.found:,}", f"{check.expected:,}", mark)
    console.print(table)
    wrong = sum(not check.right for check in report)
    console.print(f"chart: {folder / 'flights.png'}")
    console.print(f"{seconds:.0f} s, installation not counted (kill seed {seed}); {wrong or 'no'} figures off")


def print_paths(console: Console, folder: Path) -> None:
    """Say which path a read of the topics takes."""
    with Store.open(str(folder)) as store:
        files = store.files(store.view(proof.TOPICS))
    native = [file.record_count for file in files if file.is_whole or file.offset_column is not None]
    rows = sum(file.record_count for file in files) - sum(native)
    console.print(
        f"scan() reads {sum(native):,} records of {len(native)} files with Spark's own reader, and {rows:,} of "
        f'{len(files) - len(native)} other segments through Python; format("txnlog") reads all through Python',
        soft_wrap=True,
    )


def show_store(console: Console, store: Path) -> None:
    """Show what is in the store, by the command that users have."""
    os.environ["TXNLOG_STORE"] = str(store)
    console.print(f"\nexport TXNLOG_STORE={store}", markup=False, highlight=False)
    for words in COMMANDS:
        console.print(f"\n$ txnlog {shlex.join(words)}", markup=False, highlight=False)
        if subprocess.run([sys.executable, "-m", "sparktxn", *words], check=False).returncode != 0:
            raise SystemExit(f"txnlog {words[0]} failed")


if __name__ == "__main__":
    sys.exit(main())
