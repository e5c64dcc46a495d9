"""Loss of objects that can be derived from data files and the log."""

from __future__ import annotations

import random

import mdt
from mdt.metadata.files import paths


def lose(table: mdt.Table, draw: random.Random) -> None:
    """Delete up to three attachments and checkpoints. Checkpoints are kept if they are the only
    source of a state.
    """
    storage, snapshot = table.storage, table.snapshot()
    prefixes = [paths.ATTACHMENTS_DIR]
    if not (snapshot.retention.first or snapshot.tags.seqs):
        prefixes += [paths.CHECKPOINTS_DIR, paths.HINT]
    candidates = [info.path for place in prefixes for info in storage.list(place)]
    for path in draw.sample(candidates, min(len(candidates), 3)):
        storage.delete(path)
