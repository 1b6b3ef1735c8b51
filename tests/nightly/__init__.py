"""The tests of a night: `make nightly`."""
