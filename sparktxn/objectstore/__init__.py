"""Object stores behind one contract."""
