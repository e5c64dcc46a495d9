"""The manifests of a table as the leaves of a B+ tree, which a commit changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from mdt.errors import Corrupt
from mdt.formats.iceberg.manifests import DATA, DELETES, Entry, Leaf, Manifest, key_of

FILES_MAX = {DATA: 256, DELETES: 128}
"""Content -> files of a manifest. A commit copies the entries of each manifest that it changes, and
a reader opens each manifest. Deletion vectors change more often than data files.
"""
_FILLED = 2 / 3
"""Share of the limit that the parts of a manifest have after it is cut."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The leaves after a commit.

    Attributes:
        unchanged: Leaves that it refers to.
        manifests: The leaves that it makes.
    """

    unchanged: Sequence[Leaf]
    manifests: Sequence[Manifest]


def changed(
    leaves: Sequence[Leaf],
    removed: AbstractSet[str],
    added: Sequence[Entry],
    read: Callable[[Leaf], Sequence[Entry]],
    content: int,
) -> Changed:
    """Return the leaves after a commit.

    Args:
        leaves: Those before it, of one content, ordered by their lowest key.
        removed: Paths of the data files that it removes, or whose vectors it removes.
        added: The files that it adds.
        read: Returns the files in a leaf.

    Raises Corrupt if a removed file is in no leaf.
    """
    live = [leaf for leaf in leaves if leaf.live]
    lows = [leaf.low for leaf in live]

    def number(key: int) -> int:
        return max(0, bisect_right(lows, key) - 1)

    new: dict[int, list[Entry]] = {number(key_of(path)): [] for path in removed}
    for entry in added:
        new.setdefault(number(entry.key), []).append(entry)
    manifests, found = list[Manifest](), 0
    for at in sorted(new):
        entries = list(read(live[at])) if live else []
        deleted = [entry for entry in entries if entry.path in removed]
        found += len(deleted)
        remaining = [entry for entry in entries if entry.path not in removed]
        low = live[at].low if at else 0
        manifests += _cut(low, [*remaining, *new[at]], deleted, FILES_MAX[content])
    if found < len(removed):
        missing = min(removed)
        raise Corrupt(
            "manifests of Iceberg lack a file of the table",
            path=missing,
            hint="t.repair() makes them again",
        )
    return Changed([leaf for at, leaf in enumerate(live) if at not in new], manifests)


def _cut(
    low: int, live: Sequence[Entry], deleted: Sequence[Entry], files_max: int
) -> Iterator[Manifest]:
    """Yield the manifests of a range of keys that begins with ``low``. Entries with the same key
    stay together.
    """
    entries = sorted(live, key=lambda entry: (entry.key, entry.path))
    size = len(entries)
    if size > files_max:
        size = int(files_max * _FILLED)
    start = 0
    while True:
        end = start + size
        while 0 < end < len(entries) and entries[end].key == entries[end - 1].key:
            end += 1
        yield Manifest(low, entries[start:end], deleted)
        if end >= len(entries):
            return
        start, low, deleted = end, entries[end].key, ()
