"""`txnlog` with a gun in its hand: kills its own driver inside a commit, after the entry is put.

That is the worst moment there is: the log holds the micro-batch, Spark does not know it, and will run it again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.source import DefaultSource
from pyspark_txnlog.writing.stream_writer import TxnLogStreamWriter

__all__ = ["KillingSource"]

_commits = 0


class KillingSource(DefaultSource):
    """The data source ``txnlog-killing``: as ``txnlog``, with the options `killAtCommit` and `killNote`.

    The driver dies in the `killAtCommit`-th commit of its run, once; `killNote` is the file that remembers it.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format()`` takes."""
        return "txnlog-killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The streaming sink, armed."""
        own = {name: self.options[name] for name in ("killatcommit", "killnote")}
        others: Mapping[str, Any] = {name: value for name, value in self.options.items() if name not in own}
        writer = _KillingWriter(WriteOptions.parse(others, WRITE_STREAM), schema)
        writer.arm(int(own["killatcommit"]), Path(own["killnote"]))
        return writer


class _KillingWriter(TxnLogStreamWriter):
    def arm(self, at_commit: int, note: Path) -> None:
        """Says when to kill."""
        self._at_commit, self._note = at_commit, note

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commits, and then may be the last thing that this driver did."""
        global _commits
        super().commit(messages, batchId)
        _commits += 1
        if _commits >= self._at_commit and not self._note.exists():
            self._note.write_text(str(batchId))
            # The driver leads the session; its JVM is in its group, Python's workers are in one of their own.
            os.killpg(os.getsid(0), signal.SIGKILL)
            time.sleep(3600)
