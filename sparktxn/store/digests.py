"""What an engine's connector digests the rows of a batch with, so that a repeated batch is known by its rows."""

from __future__ import annotations

from sparktxn._rows.stage.rowdigest import digest_of_words, key_words, name_word
from sparktxn._rows.stage.stagedsegment import RowsDigest, with_digest

__all__ = ["RowsDigest", "digest_of_words", "key_words", "name_word", "with_digest"]
