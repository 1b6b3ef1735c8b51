"""What every room stands on: values, settings, and what a process has: clocks, threads, events, listeners."""
