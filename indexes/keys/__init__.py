"""Key indexes, one a module, and :mod:`indexes.keys.sealed`, which their key parts share."""
