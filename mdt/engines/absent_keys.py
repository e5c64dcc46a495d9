"""Keys that the tasks of a write did not find, for conflict checks. They are fetched only if
another transaction has committed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic

import numpy as np
import pyarrow as pa

from indexes.base import KeyHashes
from mdt.commit.conflicts import TABLE
from mdt.engines.engine import Engine, R
from mdt.engines.tasks import ABSENT
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.files.file_group import NewFile


class WrittenKeys(Mapping[str, KeyHashes]):
    """The keys of the files that a transaction has written, by partition: a superset of its absent
    keys that it inserted. Loaded from key maps.
    """

    def __init__(self, objects: ObjectReader, files: Sequence[NewFile], is_global: bool) -> None:
        self._objects = objects
        self._files = files
        self._is_global = is_global

    def __getitem__(self, partition: str) -> KeyHashes:
        maps = [
            self._objects.key_map(f.key_map).verify_all().hashes
            for f in self._files
            if f.key_map is not None and (f.partition == partition or partition == TABLE)
        ]
        if not maps or (partition == TABLE) != self._is_global:
            raise KeyError(partition)
        return KeyHashes.concat(maps)

    def __iter__(self) -> Iterator[str]:
        if self._is_global:
            return iter([TABLE])
        return iter(sorted({f.partition for f in self._files}))

    def __len__(self) -> int:
        return len(list(iter(self)))


class AbsentKeys(Mapping[str, KeyHashes], Generic[R]):
    """The absent keys of tagged rows (tasks.ABSENT), and the keys of ``written``. 16 bytes per
    key.
    """

    def __init__(
        self,
        engine: Engine[R],
        tagged: R,
        is_table_wide: bool,
        written: Mapping[str, KeyHashes] | None = None,
    ) -> None:
        """``is_table_wide``: True if the keys are absent from the whole table."""
        self._engine, self._tagged, self._is_table_wide = engine, tagged, is_table_wide
        self._written = written or {}
        self._absent: dict[str, KeyHashes] | None = None

    def __getitem__(self, partition: str) -> KeyHashes:
        hashes = [
            keys[partition] for keys in (self._written, self._absent_hashes()) if partition in keys
        ]
        if not hashes:
            raise KeyError(partition)
        return KeyHashes.concat(hashes)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._written, *self._absent_hashes()}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _absent_hashes(self) -> Mapping[str, KeyHashes]:
        if self._absent is None:
            names = ["__mdt_partition", "__mdt_segment", "__mdt_position"]
            rows = self._engine.select(self._tagged, ABSENT, names)
            self._absent = _by_partition(rows, self._is_table_wide)
        return self._absent


def hashes_of(rows: pa.Table) -> KeyHashes:
    """Return the hashes whose two words are the columns segment and position."""
    return KeyHashes(
        *(rows[name].to_numpy().view(np.uint64) for name in ("__mdt_segment", "__mdt_position"))
    )


def _by_partition(rows: pa.Table, is_table_wide: bool) -> dict[str, KeyHashes]:
    """Return the hashes of ABSENT rows by partition, or all of them under TABLE if
    ``is_table_wide``.
    """
    hashes = hashes_of(rows)
    if is_table_wide:
        return {TABLE: hashes} if len(hashes) else {}
    codes = rows["__mdt_partition"].combine_chunks().dictionary_encode()
    number = codes.indices.to_numpy()
    return {path: hashes.take(number == n) for n, path in enumerate(codes.dictionary.to_pylist())}
