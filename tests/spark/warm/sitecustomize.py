"""Let Spark's Python processes be forks of one that has imported all: Python imports this module at its start.

`warm_environment` puts the folder on ``PYTHONPATH``. Spark starts a process for each source of a stream and a daemon
for each kind of work. Each would import for a second or two, on a busy machine for longer than Spark waits.
"""

from __future__ import annotations

import os
import sys

if address := os.environ.get("FORKS_OF_SPARK"):
    program = sys.orig_argv[sys.orig_argv.index("-m") :] if "-m" in sys.orig_argv else ["", ""]
    if program[1] in ("pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner"):
        import runpy
        from pathlib import Path

        runpy.run_path(str(Path(__file__).parents[2] / "forkserver.py"))["run_in_fork"](address, program)
