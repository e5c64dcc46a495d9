"""Pure index structures: bytes in, verdict out.  See :mod:`indexes.base`."""
