"""Writes: batch, streams, `foreach_batch`."""
