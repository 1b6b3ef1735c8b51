"""Writing records: partitions, segments, uploads that no entry names yet."""
