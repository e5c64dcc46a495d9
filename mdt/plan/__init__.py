"""From a predicate to the files, row groups and positions that may match, and why."""
