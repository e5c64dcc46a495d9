"""Removal of Hudi's metadata table, which would hide the commits of mdt from Hudi's readers.

Without it readers list directories, and the next Hudi writer builds it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from mdt import logs
from mdt.hudi import properties
from mdt.metadata.files import paths
from mdt.metadata.history.foreign_writers import BACKUP, read_properties
from mdt.stores.storage import Storage

PARTITIONS = "hoodie.table.metadata.partitions"
"""Property with the partitions of the metadata table that are complete."""
_PROPERTIES = (PARTITIONS, f"{PARTITIONS}.inflight")
_FOLDER = f"{paths.HUDI}/metadata"
_CHECKSUM = f"{paths.HUDI}/.hoodie.properties.crc"
"""Hadoop's checksum of the properties on a local disk. Without it Hadoop reads them unchecked."""


def replace_properties(
    storage: Storage, stored: Mapping[str, str], changed: Mapping[str, str]
) -> None:
    """Replace the properties of a table as Hudi replaces them, under a backup."""
    storage.replace(BACKUP, properties.encode(stored))
    storage.delete(_CHECKSUM)
    storage.replace(paths.properties(), properties.encode(changed))
    storage.delete(BACKUP)


def remove_metadata_table(storage: Storage) -> None:
    """Remove Hudi's metadata table from the properties, and its files.

    Raises Corrupt if the properties cannot be read, and Unavailable.
    """
    stored = read_properties(storage)
    if stored is None or not stored.get(PARTITIONS):
        return
    remaining = {name: value for name, value in stored.items() if name not in _PROPERTIES}
    replace_properties(storage, stored, remaining)
    storage.delete_many([info.path for info in storage.list(_FOLDER)])
    logs.METADATA.warning(
        "%s: removed Hudi's metadata table, which mdt does not maintain; the next Hudi writer"
        " builds it again",
        storage.url,
    )
