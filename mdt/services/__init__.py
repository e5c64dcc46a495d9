"""Table services: layout, cleaning, history, indexing, reports, check and repair.

Services that change the table are ordinary transactions.
"""
