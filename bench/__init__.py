"""Benchmarks: each figure with that of a peer, measured in the same run. `make bench` runs them all."""
