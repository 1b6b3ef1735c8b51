"""What one process owns: its clock and ids, its threads, its forks and its dropped handles."""
