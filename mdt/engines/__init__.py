"""Where work runs: each engine runs the same pure functions over rows; Spark is one."""
