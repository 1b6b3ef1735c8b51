"""Runs the blocks of pages, one after another, each page in its own folder: `python runner.py PAGE.json …`.

A file has `before`, `after` and `between` by number, which are programs, and `blocks`, pairs of a language and a text.
The output of each block is written to the file's name with `.out`, and the error of a page that fails. Pages with Spark
share this process's JVM, not a session.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any


def run_python(text: str, names: dict[str, Any]) -> None:
    exec(compile(text, "page", "exec"), names)


def run_shell(text: str, names: dict[str, Any]) -> None:
    # More than one command, so that bash stays their parent: completion is installed for the shell that is found there.
    program = f"{text}\n:"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", program], capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(f"{text}\nended with {done.returncode}: {done.stdout}{done.stderr}")


def run_console(text: str, names: dict[str, Any]) -> None:
    """Print what a terminal shows: each command, and below it what it has printed, remarks last."""
    for command in commands_of(text):
        done = subprocess.run(
            ["bash", "-uo", "pipefail", "-c", f"{command}\n"], capture_output=True, text=True, check=False
        )
        print(f"$ {command}\n{done.stdout}{done.stderr}", end="")
        if done.returncode:
            raise RuntimeError(f"{command}\nended with {done.returncode}: {done.stdout}{done.stderr}")


def commands_of(text: str) -> list[str]:
    return [part.partition("\n")[0] for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]


def run_server(text: str, names: dict[str, Any]) -> None:
    """Run a block that serves until it is ended: end it as Ctrl-C does once it says where it listens."""
    server = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"{text}\n:"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    said = []
    for line in server.stdout:
        said.append(line)
        if re.search(r"(127\.0\.0\.1|0\.0\.0\.0):\d+", line):
            break
    os.killpg(server.pid, signal.SIGINT)
    said.append(server.communicate(timeout=60)[0])
    output = "".join(said)
    if server.returncode not in (0, 130, -signal.SIGINT) or "Traceback" in output:
        raise RuntimeError(f"{text}\nended with {server.returncode}: {output}")


def run_sql(text: str, names: dict[str, Any]) -> None:
    for statement in filter(None, map(str.strip, text.split(";"))):
        names["spark"].sql(statement).collect()


def run_diff(text: str, names: dict[str, Any]) -> None:
    """Run what a reader has after the change: the lines that are added, and those that stay."""
    after = "".join(line[1:] for line in text.splitlines(keepends=True) if line[:1] in (" ", "+"))
    if text.lstrip("-+ ").startswith("spark."):
        names["_"] = eval(f"({after})", names)
    else:
        run_python(after, names)


RUN = {
    "python": run_python,
    "bash": run_shell,
    "sh": run_shell,
    "sql": run_sql,
    "diff": run_diff,
    "console": run_console,
    "server": run_server,
}


def run_page(page: dict[str, Any]) -> list[str]:
    names: dict[str, Any] = {"__name__": "__main__"}
    run_python(page["before"], names)
    printed = []
    for number, (kind, text) in enumerate(page["blocks"]):
        run_python(page["between"].get(str(number), ""), names)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            RUN[kind](text, names)
        printed.append(out.getvalue())
    run_python(page["after"], names)
    return printed


def stop_spark() -> None:
    """End the session that a page has left, by an error: the next page starts its own."""
    spark = sys.modules.get("pyspark.sql")
    left = None if spark is None else spark.SparkSession.getActiveSession()
    if left is not None:
        left.stop()


def main(files: list[Path]) -> None:
    for file in files:
        os.chdir(file.parent)
        result: dict[str, Any] = {"printed": [], "error": ""}
        try:
            result["printed"] = run_page(json.loads(file.read_text()))
        except Exception:
            result["error"] = traceback.format_exc()
        stop_spark()
        file.with_suffix(".out").write_text(json.dumps(result))


if __name__ == "__main__":
    main([Path(file) for file in sys.argv[1:]])
