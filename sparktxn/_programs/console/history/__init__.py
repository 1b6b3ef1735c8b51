"""What entries did, for the console: the facts of each, kept, summed, and on a line of time."""
