"""Copy a store, and bring a copy forward."""
