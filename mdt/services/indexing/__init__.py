"""Services for indexes and statistics: build, drop, rekey and report."""
