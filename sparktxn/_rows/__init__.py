"""Rows: reading what the log names, staging what it will name, and table formats for other engines."""
