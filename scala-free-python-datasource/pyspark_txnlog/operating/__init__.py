"""What an operator uses: listener, browsing, the examination of a session."""
