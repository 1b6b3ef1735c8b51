"""Import what Spark's Python processes need in the daemons that fork them: Python imports this module at its start.

`build_session` puts the folder on ``PYTHONPATH``. A process that plans, reads or commits would import all of it, for a
few milliseconds of work.
"""

from __future__ import annotations

import sys

if "pyspark.daemon" in sys.orig_argv:
    import gc
    import importlib

    connector = ("reading.batch_reader", "reading.streams", "writing.batch_writer", "writing.stream_writer")
    for name in ("pandas", "pyspark.sql", "pyspark.worker", *(f"pyspark_txnlog.{each}" for each in connector)):
        importlib.import_module(name)
    gc.freeze()  # the forks share it
