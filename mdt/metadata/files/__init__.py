"""Storage of one data file's metadata: object names, key map, deletion vector and summaries."""
