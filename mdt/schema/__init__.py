"""What a table's columns are, as declared and as stored, and how data of callers gets into that
form.
"""
