"""Objects that follow from data files and the log, and are gone."""

from __future__ import annotations

import random

import mdt
from mdt.metadata.files import paths


def lose(table: mdt.Table, draw: random.Random) -> None:
    """Delete up to three attachments and checkpoints; no checkpoint where it is all that there is
    of a state.
    """
    storage, snapshot = table.storage, table.snapshot()
    places = [paths.ATTACHMENTS_DIR]
    if not (snapshot.retention.first or snapshot.tags.seqs):
        places += [paths.CHECKPOINTS_DIR, paths.HINT]
    found = [info.path for place in places for info in storage.list(place)]
    for path in draw.sample(found, min(len(found), 3)):
        storage.delete(path)
