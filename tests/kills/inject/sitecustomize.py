"""Arms every Python process of a run under kills: Python imports this module at its start.

The drivers of `tests.kills` put the folder on ``PYTHONPATH``. Spark hands that to the processes that plan and commit,
and to the daemon that forks workers. The product itself has no hook.
"""

from __future__ import annotations

import os
import sys

if "KILLS_FOLDER" in os.environ:
    from tests.kills.points import arm

    arm()
    if "pyspark.daemon" in sys.orig_argv:
        import gc
        import importlib

        from tests.spark.sessions import IMPORTED

        for name in IMPORTED:
            importlib.import_module(name)
        gc.freeze()  # the forks share it
