"""Check a table, and repair it from its data files and its log.

:mod:`check` walks over everything that a table consists of and yields problems; :mod:`repair` has
the table from kinds of problems to remedies.  Every other module is one part of a table: how it is
checked, and how it is rebuilt.
"""
