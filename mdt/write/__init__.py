"""From rows to files: normalize, locate, assign, write, summarize."""
