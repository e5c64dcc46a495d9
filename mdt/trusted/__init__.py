"""From bytes to trusted values: what was read from a table's directory is checked here before anybody acts on it.

A table may come from somebody else, and a checksum proves only that bytes are what their writer made.  So every name,
number and length is held against its grammar and its limits (:mod:`mdt.limits`) before anything is allocated, opened,
followed or deleted because of it; the rest of the package gets values, never claims.  What does not hold is ``errors.Corrupt``.
"""
