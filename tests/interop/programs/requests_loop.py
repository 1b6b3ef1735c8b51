"""Answers requests, each a line of JSON on standard input: the answer is a file of Arrow or JSON, or an error.

A line of JSON on standard output says that the answer exists.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa


def serve(start: Callable[[], Mapping[str, Callable[[dict], object]]]) -> None:
    """Answer what is asked for, by the functions that `start` returns."""
    # What packages and their processes print goes elsewhere.
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answers = start()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = answers[request["what"]](request)
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        else:
            put(answer, Path(request["answer"]))
            said = {}
        print(json.dumps(said), file=told, flush=True)


def put(answer: object, path: Path) -> None:
    if isinstance(answer, pa.Table):
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, answer.schema) as writer:
            writer.write_table(answer)
    else:
        path.write_text(json.dumps(answer))
