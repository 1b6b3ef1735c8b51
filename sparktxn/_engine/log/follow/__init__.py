"""Following the log: one replica of the state, and the rule that says when its answers are final."""
