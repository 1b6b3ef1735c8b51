"""The log: stored formats, object stores, the pure state machine, and the log that joins them."""
