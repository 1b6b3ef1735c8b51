"""Arms every Python process of a run under kills: Python imports this module at its start.

The drivers of `tests.kills` put the folder on ``PYTHONPATH``. Spark hands that to the processes that plan and commit,
and to the daemon that forks workers. The product itself has no hook.
"""

from __future__ import annotations

import os

if "KILLS_FOLDER" in os.environ:
    import runpy
    from pathlib import Path

    from tests.kills.points import arm

    arm()
    # Its processes are forks of armed ones.
    runpy.run_path(str(Path(__file__).parents[2] / "spark" / "warm" / "sitecustomize.py"))
