"""The command ``mdt``."""
