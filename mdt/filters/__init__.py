"""Parsing of users' filters and orders into predicates and sort keys."""
