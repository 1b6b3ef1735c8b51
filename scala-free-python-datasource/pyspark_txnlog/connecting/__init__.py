"""Sessions, stores, and how errors reach Spark."""
