"""The state machine: pure functions from state and command to a delta or a refusal."""
