"""Writing the log: lists of commands, and the loop that puts them into entries."""
