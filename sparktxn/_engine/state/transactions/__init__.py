"""Transactions: producers, epochs, partitions, prepared ones, sinks, and which offsets are committed."""
