"""Test support: storages that fail or wait on purpose, and engines. Production code does not import
it.
"""
