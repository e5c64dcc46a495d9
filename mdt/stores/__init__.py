"""Storage backends: objects, listings, the clock and randomness. See ``mdt.stores.storage``."""
