"""Delta Lake: the log ``_delta_log`` of a table, derived from our commit records."""
