"""Planning: finds the files, row groups and positions that may match a predicate, and explains
why.
"""
