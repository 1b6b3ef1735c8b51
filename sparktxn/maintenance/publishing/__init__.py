"""Publishing topics as tables of open formats: versions are decided by the log, and their metadata follows from it."""
