"""Tables that other Hudi writers wrote, read as our own: their files as records of a log."""
