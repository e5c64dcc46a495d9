"""A Hive metastore as a catalog."""

from __future__ import annotations

from dataclasses import dataclass

from mdt.catalogs.entry import Entry, split_url
from mdt.errors import Invalid, Unsupported


@dataclass(frozen=True, slots=True)
class HiveMetastore:
    """A Hive metastore. Needs ``pip install 'pyspark-mdt[hive]'``.

    Attributes:
        url: Its address, such as ``thrift://metastore.example.com:9083``.

    >>> from mdt.catalogs import HiveMetastore
    >>> HiveMetastore("thrift://metastore.example.com:9083")
    HiveMetastore(url='thrift://metastore.example.com:9083')
    """

    url: str

    def __post_init__(self) -> None:
        """Check the address. Raises Invalid."""
        parts = split_url(self.url)
        if parts is None or parts.scheme != "thrift" or parts.path.strip("/"):
            raise Invalid(
                "the address of a Hive metastore begins with thrift://",
                hint="write 'thrift://metastore.example.com:9083'",
            )

    def add(self, entry: Entry, namespace: str, name: str) -> None:
        """Enter a table. See :class:`mdt.catalogs.entry.Catalog`.

        Columns and partitions that are new since the last call are added.
        """
        try:
            from mdt.catalogs import hive_entries
        except ImportError as error:
            raise Unsupported(
                f"Hive metastores need a package that is not installed: {error}",
                hint="pip install 'pyspark-mdt[hive]'",
            ) from error
        hive_entries.add(self.url, entry, namespace, name)
