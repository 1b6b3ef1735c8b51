"""Merge files, by offsets (rewrite, folding) or by key (compact)."""
