"""Frozen values that all layers share, the checks of what callers pass, and how values show themselves."""
