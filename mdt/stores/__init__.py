"""The storages: where bytes, names, the clock and randomness come from.  See ``mdt.storage``."""
