"""What an engine's connector reads with: plans, cuts of micro-batches, and files that an engine reads whole."""

from __future__ import annotations

from sparktxn._engine.format.keytext import key_texts
from sparktxn._engine.state.keyed import declared_columns, key_columns
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn._rows.scan.content import Rows, checked_order, checked_rows, lacks_deletes
from sparktxn._rows.scan.keyedfigures import keyed_figures, keyed_rows
from sparktxn._rows.scan.latesttask import hidden_ranges
from sparktxn._rows.scan.microbatchcut import CommitCut, compacted_entry
from sparktxn._rows.scan.plan import Isolation, Order, end_of
from sparktxn._rows.scan.storedfiles import MergedFile, unfit_segments

__all__ = [
    "CommitCut",
    "Isolation",
    "MergedFile",
    "Order",
    "Rows",
    "SegmentRef",
    "checked_order",
    "checked_rows",
    "compacted_entry",
    "declared_columns",
    "end_of",
    "hidden_ranges",
    "key_columns",
    "key_texts",
    "keyed_figures",
    "keyed_rows",
    "lacks_deletes",
    "unfit_segments",
]
