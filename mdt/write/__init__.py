"""The write path: normalize rows, locate their keys, assign file groups, write files and
summaries.
"""
