"""Storages that fail on purpose, and what else tests need of the table; nothing in production
imports it.
"""
