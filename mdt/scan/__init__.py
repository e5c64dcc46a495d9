"""Scans with Arrow: runs scan plans in threads, looks up rows by key, and finds the first rows."""
