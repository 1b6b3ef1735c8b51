"""Mutation testing of the state machine."""
