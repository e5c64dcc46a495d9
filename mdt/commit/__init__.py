"""How a table changes: claims, transactions, conflicts, Hudi's view of a commit, and recovery from
crashes.
"""
