"""Key indexes: where may a record key live?  Each module is one :class:`indexes.base.KeyIndex`."""
