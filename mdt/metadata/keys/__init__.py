"""Finding keys: candidates from the key index, then the live row of each key."""
