"""Standard streams that are closed, full, of another encoding, or gone: the store has what the command was to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.terminal import ok

COMMAND = f"{sys.executable} -m sparktxn"
FULL = "txnlog: cannot write to standard output: No space left on device"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, in which txnlog is a process of its own."""
    line = line.replace("txnlog ", f"{COMMAND} ")
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_failure(closed: str) -> None:
    line = (
        "txnlog topics create orders --json CLOSED && printf '1\\n2\\n' | txnlog produce -t orders OUT"
        " && txnlog consume -t orders -e -G g CLOSED && txnlog maintain --apply CLOSED"
    )
    done = shell(line.replace("CLOSED", closed).replace("OUT", closed.removeprefix("<&- ")))
    assert done.returncode == 0, done.stderr
    assert "--debug" not in done.stderr
    assert ok("consume", "-t", "orders", "-e").out == b"1\n2\n"
    assert [row["lag"] for row in ok("groups", "describe", "g", "--json").json] == [0]


def test_what_is_opened_does_not_get_the_number_of_a_closed_stream() -> None:
    done = shell("txnlog topics create orders >&- 2>&-; echo $?; txnlog verify")
    assert done.stdout.startswith("0\n")
    assert done.returncode == 0, done.stdout


def test_an_error_keeps_its_exit_code_without_a_place_to_print_it() -> None:
    ok("topics", "create", "orders")
    for place in ("2>&-", "2>/dev/full"):
        assert shell(f"txnlog topics create orders {place}").returncode == 1, place


def test_records_are_not_read_from_a_closed_input() -> None:
    ok("topics", "create", "orders")
    for line in ("txnlog produce -t orders <&-", "txnlog gateway --sasl-line alice <&-"):
        done = shell(line)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("txnlog: standard input is closed: give files, or what the command reads by <")


@pytest.mark.parametrize("words", ["--help", "version", "topics list --json"])
def test_a_full_device_is_named_and_a_closed_pipe_is_not(words: str) -> None:
    ok("topics", "create", "orders")
    done = shell(f"txnlog {words} >/dev/full")
    assert (done.returncode, done.stderr.startswith(FULL), done.stderr.count("\n")) == (1, True, 1)
    done = shell(f"set -o pipefail; txnlog {words} | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_records_that_were_not_printed_are_not_committed_for_the_group() -> None:
    ok("topics", "create", "orders")
    ok("produce", "-t", "orders", stdin=b"1\n2\n")
    assert FULL in shell("txnlog consume -t orders -e -G g >/dev/full").stderr
    assert ok("consume", "-t", "orders", "-e", "-G", "g").out == b"1\n2\n"


def test_text_that_an_encoding_lacks_is_escaped_and_json_is_utf_8() -> None:
    ok("topics", "create", "orders")
    ok("groups", "reset", "gruppe-☃", "--topic", "orders", "--to-earliest", "--apply")
    line = "txnlog groups list; txnlog groups list --json; txnlog groups describe kein-☃"
    done = subprocess.run(
        ["bash", "-c", line.replace("txnlog ", f"{COMMAND} ")],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=60,
    )
    assert rb"gruppe-\u2603" in done.stdout
    assert '"gruppe-☃"'.encode() in done.stdout
    assert rb"kein-\u2603" in done.stderr
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)


def test_without_a_locale_records_are_written_as_they_are() -> None:
    ok("topics", "create", "orders")
    done = shell("printf 'grüße ☃\\n' | txnlog produce -t orders && txnlog consume -t orders -e", LC_ALL="C")
    assert (done.returncode, done.stdout) == (0, "grüße ☃\n")


def test_a_pipe_that_does_not_wait_gets_everything() -> None:
    ok("topics", "create", "orders")
    ok("produce", "-t", "orders", stdin=b"x" * 900_000)
    program = "import os, sys; os.set_blocking(1, False); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = shell(f"{sys.executable} -c '{program}' -m sparktxn consume -t orders -e | (sleep 0.3; wc -c)")
    assert (done.stdout.strip(), done.stderr) == ("900001", "")
