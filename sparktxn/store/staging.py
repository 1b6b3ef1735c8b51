"""What an engine's connector stages with: the columns of rows, as the topics of a batch have them."""

from __future__ import annotations

from sparktxn._rows.stage.columnconversion import RECORD_COLUMNS
from sparktxn._rows.stage.newcolumns import with_columns
from sparktxn._rows.stage.rowpartitions import with_partition_key
from sparktxn._rows.stage.stagedsegment import StageTopic

__all__ = ["RECORD_COLUMNS", "StageTopic", "with_columns", "with_partition_key"]
