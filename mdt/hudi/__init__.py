"""Hudi's file formats, one module per concept. Converts between bytes and Arrow without any I/O."""
