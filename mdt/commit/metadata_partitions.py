"""The partitions of Hudi's metadata table that readers may use.

The properties of the data table name them. A partition that is not named is not read, and Hudi's
next writer makes it again. If none is named, readers list directories.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial

from mdt import logs
from mdt.commit.upgrading import replace_properties, without_metadata_table
from mdt.hudi import properties
from mdt.hudi.read.metadata_state import FOLDER
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import Storage

PARTITIONS = properties.METADATA_PARTITIONS
_LAST = "\U0010ffff"
"""Sorts after the names of all folders."""
_PARTITION_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)


def partitions_in(stored: Mapping[str, str]) -> set[str]:
    """Return the partitions of the metadata table that properties of a table name.

    >>> sorted(partitions_in({PARTITIONS: "files,column_stats"}))
    ['column_stats', 'files']
    """
    return set(filter(None, (stored.get(PARTITIONS) or "").split(",")))


def name_partitions(
    metadata: Metadata,
    stored: Mapping[str, str],
    kept: Collection[str],
    more: Mapping[str, str],
) -> None:
    """Name the partitions that readers may use, and delete the others.

    Args:
        stored: The properties of the table.
        more: Other properties to set.

    Raises Unavailable.
    """
    lost = partitions_in(stored) - {*kept}
    changed = {**without_metadata_table(stored), PARTITIONS: ",".join(sorted(kept)), **more}
    replace_properties(metadata, changed)
    if lost:
        names = sorted(filter(_PARTITION_NAME.fullmatch, lost))
        storage = metadata.storage
        folders = storage.together(*(partial(storage.list, f"{FOLDER}/{name}") for name in names))
        storage.delete_many([info.path for infos in folders for info in infos])
        logs.METADATA.warning(
            "%s: took %s out of Hudi's metadata table, which mdt does not maintain",
            storage.url,
            ", ".join(sorted(lost)),
        )


def remove_metadata_table(metadata: Metadata) -> None:
    """Remove Hudi's metadata table from the properties, and its folder.

    Hudi could not change the version of the table if the folder was there without files.

    Raises Corrupt if the properties cannot be read, and Unavailable.
    """
    storage = metadata.storage
    if remove_from_properties(metadata):
        storage.delete_many([info.path for info in storage.list(FOLDER)])
        _drop_folders(storage, FOLDER)
        parent, _, name = FOLDER.rpartition("/")
        storage.drop_directories(parent, f"{name}\0", start=name)
        logs.METADATA.warning(
            "%s: removed Hudi's metadata table; readers list files until a writer makes it again",
            storage.url,
        )


def _drop_folders(storage: Storage, folder: str) -> None:
    """Remove the empty folders below ``folder``."""
    for name in storage.children(folder):
        _drop_folders(storage, f"{folder}/{name}")
    storage.drop_directories(folder, _LAST)


def remove_from_properties(metadata: Metadata) -> bool:
    """Remove Hudi's metadata table from the properties, so that readers list directories. Return
    False if it is not there.
    """
    stored = read_properties(metadata.storage)
    if stored is None or not stored.get(PARTITIONS):
        return False
    replace_properties(metadata, without_metadata_table(stored))
    return True
