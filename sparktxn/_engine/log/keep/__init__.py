"""Keeping a log short: checkpoints, sealed runs, and the replay that verifies them."""
