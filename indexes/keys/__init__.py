"""Key indexes. Each module contains a :class:`indexes.base.KeyIndex`."""
