"""Run a scan plan with Arrow."""
