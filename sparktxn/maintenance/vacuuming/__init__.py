"""The vacuum: delete objects that no reader can need."""
