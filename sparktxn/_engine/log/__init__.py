"""The log: the write loop, following, checkpoints, read views."""
