"""Other writers and other tables at the same place, and records that storage shows late."""
