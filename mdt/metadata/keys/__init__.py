"""Key look-up: candidates from the key index, then the live row of each key."""
