"""What a topic looks like to readers of open table formats: versions, and the objects that say so. Pure."""
