"""Reading objects of a listing."""

from __future__ import annotations

from mdt.stores.contract import check_size
from mdt.stores.storage import Storage


def read_listed(objects: Storage, path: str, size: int, bytes_max: int) -> bytes:
    """Return an object of a listing.

    Raises Corrupt without reading it if it is larger than ``bytes_max`` bytes, and Missing.
    """
    return objects.read(path, 0, check_size(path, size, bytes_max))
