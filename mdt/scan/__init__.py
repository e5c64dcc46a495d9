"""Run a scan plan with Arrow: row groups and single pages, in threads; rows by key; the first rows
in an order.
"""
