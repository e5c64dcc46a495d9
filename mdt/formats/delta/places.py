"""The places of large deletion vectors, as earlier versions of a Delta log have them.

A version takes a former vector back by its place, which depends on the other vectors of the commit
that has put it. It is in the version of that commit, and in later checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt, Missing
from mdt.formats.data_files import DataFile
from mdt.formats.delta.checkpoint import large_vectors
from mdt.formats.delta.vectors import (
    Descriptor,
    is_large_vector,
    object_of,
    objects_with,
    vectors_in_log,
)
from mdt.formats.earlier import Earlier
from mdt.formats.uris import encoded

FOLDER = "_delta_log"
CHECKPOINT_COMMITS = 100
"""Commits after which there is another checkpoint. Readers replay at most so many versions."""
CHECKPOINT = ".checkpoint.parquet"

_LARGE = b'"storageType":"u"'
_HINT = "t.repair() makes it again"


def version_path(seq: int) -> str:
    """Return the path of a version."""
    return f"{FOLDER}/{seq:020d}.json"


def checkpoint_path(seq: int) -> str:
    """Return the path of the checkpoint of a version.

    >>> checkpoint_path(7)
    '_delta_log/00000000000000000007.checkpoint.parquet'
    """
    return f"{FOLDER}/{seq:020d}{CHECKPOINT}"


def former_vectors(files: Sequence[DataFile], seq: int, earlier: Earlier) -> dict[str, Descriptor]:
    """Return path -> deletion vector that files have in version ``seq``.

    Raises Corrupt and Missing if the place of a large vector is not in that version, or in earlier
    ones that readers can read.
    """
    descriptors, large = vectors_in_log(files)
    wanted = {encoded(path): path for path in large}
    for found in _since(seq, earlier, wanted):
        for name in found.keys() & wanted.keys():
            path = wanted.pop(name)
            if not is_large_vector(found[name], large[path]):
                raise _damaged(version_path(seq), f"has another deletion vector of {path}")
            descriptors[path] = found[name]
    if wanted:
        raise _damaged(version_path(seq), f"lacks the deletion vector of {min(wanted)}")
    return descriptors


def objects_of_vectors(
    files: Sequence[DataFile], descriptors: Mapping[str, Descriptor], earlier: Earlier
) -> list[tuple[str, bytes]]:
    """Return (path, content) of the objects in which files have their large vectors, mended."""
    sizes = vectors_in_log(files)[1]
    large = [file for file in files if file.path in sizes]
    paths = sorted({object_of(descriptors[path]["pathOrInlineDv"]) for path in sizes})
    read = map(earlier.read, paths)
    stored = {path: data for path, data in zip(paths, read, strict=True) if data is not None}
    return sorted(objects_with(large, descriptors, stored).items())


def _since(
    seq: int, earlier: Earlier, wanted: Mapping[str, Any]
) -> Iterator[Mapping[str, Descriptor]]:
    """Yield the large vectors that each version up to ``seq`` adds, the newest first, and end with
    a checkpoint. Ends if nothing is wanted any more.
    """
    if not wanted:
        return
    numbers = range(seq, -1, -1)
    reads = (partial(_of_version, number, earlier) for number in numbers)
    for number, found in zip(numbers, earlier.storage.each(reads), strict=True):
        checkpoint = None
        if found is None:  # older versions are deleted, and the one after it has a checkpoint
            checkpoint = _of_checkpoint(number + 1, earlier, wanted)
        elif number < seq and not number % CHECKPOINT_COMMITS:
            with suppress(Corrupt, Missing):  # older versions may exist
                checkpoint = _of_checkpoint(number, earlier, wanted)
        if checkpoint is not None:
            yield checkpoint
            return
        yield found or {}
        if not wanted:
            return


def _of_version(seq: int, earlier: Earlier) -> Mapping[str, Descriptor] | None:
    """Return path -> vector of the files that a version adds with large vectors, or None if it is
    missing.
    """
    try:
        return earlier.decode(version_path(seq), _decoded_version)
    except Missing:
        return None


def _decoded_version(path: str, content: bytes | None) -> Mapping[str, Descriptor]:
    if content is None:
        raise Missing("a version of Delta is missing", path=path, hint=_HINT)
    try:
        lines = (line for line in content.splitlines() if _LARGE in line)
        added = [fields for line in lines if (fields := json.loads(line).get("add"))]
        return {file["path"]: file["deletionVector"] for file in added}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"cannot be read: {error!r}"[:300]) from error


def _of_checkpoint(seq: int, earlier: Earlier, wanted: Iterable[str]) -> Mapping[str, Descriptor]:
    """Return path -> large vector of the ``wanted`` files in a checkpoint. Raises Corrupt and
    Missing.
    """
    files = earlier.decode(checkpoint_path(seq), _decoded_checkpoint)
    found = files.filter(pc.is_in(files["path"], pa.array(list(wanted), pa.string())))
    return dict(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _decoded_checkpoint(path: str, content: bytes | None) -> pa.Table:
    if content is None:
        raise Missing("a checkpoint of Delta is missing", path=path, hint=_HINT)
    files = large_vectors(content)
    if files is None:
        raise _damaged(path, "does not match its checksum")
    return files


def _damaged(path: str, why: str) -> Corrupt:
    return Corrupt(f"an object of Delta {why}", path=path, hint=_HINT)
