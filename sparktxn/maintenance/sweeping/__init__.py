"""The sweep of what is overdue, and retention."""
