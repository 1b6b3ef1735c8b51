"""Hostile bytes for every decoder: Hypothesis in `make test`, atheris in `make fuzz`."""
