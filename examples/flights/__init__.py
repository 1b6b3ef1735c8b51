"""The parts of `flights_demo.py`."""
