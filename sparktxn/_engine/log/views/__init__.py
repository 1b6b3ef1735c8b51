"""Looking at the log: read views, what the state says, and what entries have changed."""
