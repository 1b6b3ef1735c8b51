"""Reading: offset ranges to picklable tasks, tasks to Arrow batches."""
