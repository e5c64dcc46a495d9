"""Check a table, and repair it from its data files and its log.

:mod:`check` visits every part of a table and yields problems. :mod:`repair` maps kinds of problems
to remedies. Each of the other modules checks and rebuilds one part of a table.
"""
