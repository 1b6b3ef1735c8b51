"""What the console changes, each in two steps: what would be done, and doing exactly that. It knows no HTTP."""
