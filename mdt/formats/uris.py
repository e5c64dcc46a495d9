"""Paths of data files as URIs, in which other formats name them."""

from __future__ import annotations

from urllib.parse import quote

from mdt.errors import Invalid
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

_SAFE = "/=+&,;@!$'()*~"
"""Characters that a URI may have in a path, besides letters, digits and ``_.-``."""


def encoded(path: str) -> str:
    """Return a path relative to the table as a URI.

    >>> encoded("city=New York/a.parquet"), encoded("city=a%3Ab")
    ('city=New%20York/a.parquet', 'city=a%253Ab')
    """
    return quote(path, safe=_SAFE)


def refuse_location(storage: Storage) -> None:
    """Raise Invalid for a local path that is not Unicode, which other formats cannot name."""
    location = storage.location
    try:
        location.encode()
    except UnicodeEncodeError:
        raise Invalid(
            f"the path {location!r} is not Unicode, as the metadata of other formats must be",
            hint="choose another path, or the format Hudi alone",
        ) from None


def takes_log_files(definition: TableDefinition, partition: str) -> bool:
    """Return True if file groups of a partition may have log files.

    Polars (2.1) compares the URIs of files that have deletion vectors with their paths, and returns
    deleted rows where the two differ. There each change is a new base file.
    """
    return not definition.other_formats or encoded(partition) == partition
