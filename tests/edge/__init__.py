"""The edge fuzzer: every public method, every parameter, a table of hostile values."""
