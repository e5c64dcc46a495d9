"""The files that savepoints of Hudi keep, which a cleaning must not delete."""

from __future__ import annotations

from mdt.hudi.read.instants import SAVEPOINT
from mdt.hudi.read.loading import load_body, load_properties, load_timeline
from mdt.hudi.read.service_metadata import decode_savepoint
from mdt.metadata.files import paths
from mdt.stores.storage import Storage


def saved_paths(storage: Storage) -> frozenset[str]:
    """Return the paths of the data files of all savepoints on the timeline.

    Raises Corrupt, and Missing if a savepoint was removed meanwhile.
    """
    active = load_timeline(storage, load_properties(storage))
    saved = set[str]()
    for file in active.of_action(SAVEPOINT):
        for partition, names in decode_savepoint(load_body(storage, file), file.path).items():
            saved.update(paths.data_file(partition, name) for name in names)
    return frozenset(saved)
