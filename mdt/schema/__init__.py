"""Schemas of tables: declared and stored columns, and the conversion of input data to them."""
