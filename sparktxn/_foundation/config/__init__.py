"""Settings: parsed once at the edge, then frozen values."""
