"""What belongs to one data file: names on storage, key map, deletion vector, summaries."""
