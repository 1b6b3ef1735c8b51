"""Bytes that nobody of good will has written, for every decoder: Hypothesis in `make test`, atheris in `make fuzz`."""
