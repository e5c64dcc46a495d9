"""Random steps of mdt on a table that Hudi writes, too, with the rows expected after each."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import mdt
from mdt.commit import publish
from mdt.errors import Unsupported
from mdt.stores.storage import LocalStorage
from mdt.testing.faulty import Crash, FaultyStorage

Key = tuple[Any, ...]
Rows = dict[Key, dict[str, Any]]
OurStep = Callable[[Rows], tuple[str, list[Rows]]]
CRASHES_AT_MAX = 40
"""A writer crashes at a random change of storage among the first so many, or not at all."""
CITIES = ("paris", "rome", "oslo")
MOVED = 0.3
"""Share of the new versions of rows that may move to another partition."""


class HudiIsAtWork(Exception):
    """mdt refuses a step because Hudi has a service or a write in flight."""


class OurSteps:
    """Steps of ours, all from a seed. Rows are dictionaries without meta columns.

    A step returns the rows that the table may have then: one state, or two after a crash.
    """

    def __init__(self, seed: str, path: Path) -> None:
        self._draw = random.Random(seed)
        self._path = path
        self._table = mdt.open(path)
        self._new_keys = 0
        self._clock = 1_000_000
        self._has_buckets = self._table.definition.key_index.startswith("bucket")

    def key_of(self, row: dict[str, Any]) -> Key:
        """Return the record key of a row, after its partition unless the key is unique in the table."""
        return tuple(row[name] for name in self._key_names())

    def _key_names(self) -> tuple[str, ...]:
        """Return the columns whose values are unique in the table."""
        definition = self._table.definition
        if definition.is_global:
            return definition.key
        return (*definition.partition_by, *definition.key)

    def has_unpublished_commit(self) -> bool:
        """Return True if a crashed writer of ours has committed without completing its instant.

        Readers do not see such a commit until the next writer completes it or rolls it back.
        """
        metadata = mdt.open(self._path).metadata
        snapshot = metadata.newest(watched=False)
        record = metadata.record(snapshot.seq)
        return record is not None and not publish.is_published(
            metadata.storage, record, snapshot.definition
        )

    def settle(self) -> bool:
        """Complete or roll back commits of our crashed writers. Return False if Hudi is at work."""
        try:
            mdt.open(self._path).abort()
        except Unsupported as error:
            if "another Hudi writer" not in str(error):
                raise
            return False
        return True

    def next(self, rows: Rows) -> tuple[str, list[Rows]]:
        """Carry out a step. Return its name, and the states that the table may have.

        Raises HudiIsAtWork if the step is refused because of Hudi.
        """
        steps = self._weights()
        [step] = self._draw.choices(list(steps), list(steps.values()))
        return self.carry_out(step, rows)

    def carry_out(self, step: OurStep, rows: Rows) -> tuple[str, list[Rows]]:
        """Carry out a step like :meth:`next`."""
        try:
            return step(rows)
        except Unsupported as error:
            if "another Hudi writer" not in str(error):
                raise
            raise HudiIsAtWork(f"{step.__name__}: {error.message}") from error

    def _weights(self) -> dict[OurStep, float]:
        """Return the steps with their weights."""
        return {
            self._upsert: 6,
            self._delete: 2,
            self.crash: 3,
            self._compact: 1.5,
            self._cluster: 0 if self._has_buckets else 1.5,
            self._clean: 1,
            self._refresh: 1,
            self._reopen: 1,
        }

    def _new_key(self) -> str:
        """Return a record key that no row has had."""
        self._new_keys += 1
        return f"m{self._new_keys:03}"

    def _changed(self, rows: Rows) -> list[dict[str, Any]]:
        """Return new versions of some rows, some of them late, and new rows. Rows may move to other
        partitions if keys are unique in the table.
        """
        changed = []
        for key in self._draw.sample(sorted(rows), min(len(rows), self._draw.randrange(1, 9))):
            self._clock += 1
            ts = self._clock
            if self._draw.random() < 0.2:
                ts = self._draw.randrange(self._clock)
            row = {**rows[key], "ts": ts, "v": self._draw.randrange(1000, 9999)}
            if self._table.definition.is_global and self._draw.random() < MOVED:
                row["city"] = self._draw.choice(CITIES)
            changed.append(row)
        for _ in range(self._draw.randrange(4) if rows else 0):
            template = rows[self._draw.choice(sorted(rows))]
            self._clock += 1
            new = {"id": self._new_key(), "city": self._draw.choice(CITIES)}
            changed.append({**template, **new, "ts": self._clock, "v": self._new_keys})
        return changed

    def _after(self, rows: Rows, changed: list[dict[str, Any]]) -> Rows:
        """Return the rows after an upsert."""
        after = dict(rows)
        by_event = bool(self._table.definition.ordering)
        for row in changed:
            old = after.get(self.key_of(row))
            if old is None or not by_event or row["ts"] >= old["ts"]:
                after[self.key_of(row)] = row
        return after

    def _as_table(self, changed: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(changed, schema=self._table.readable().schema)

    def _upsert(self, rows: Rows) -> tuple[str, list[Rows]]:
        changed = self._changed(rows)
        self._table.upsert(self._as_table(changed))
        return f"our upsert of {[*map(self.key_of, changed)]}", [self._after(rows, changed)]

    def _delete(self, rows: Rows) -> tuple[str, list[Rows]]:
        keys = self._draw.sample(sorted(rows), min(len(rows), 3))
        names = self._key_names()
        self._table.delete([dict(zip(names, key, strict=True)) for key in keys])
        return f"our delete of {keys}", [{k: row for k, row in rows.items() if k not in keys}]

    def crash(self, rows: Rows) -> tuple[str, list[Rows]]:
        """Upsert rows with a writer that crashes at a random change of storage."""
        changed = self._changed(rows)
        number, mode = self._draw.randrange(CRASHES_AT_MAX), self._draw.choice(MODES)
        storage = FaultyStorage(LocalStorage(self._path, durable=False), number + 1, mode)
        try:
            mdt.open(storage, {"mdt.services.auto": False}).upsert(self._as_table(changed))
        except Crash:
            pass
        name = f"our upsert of {[*map(self.key_of, changed)]} that dies {mode} {number + 1}"
        return name, [rows, self._after(rows, changed)]

    def _compact(self, rows: Rows) -> tuple[str, list[Rows]]:
        self._table.compact()
        return "our compaction", [rows]

    def _cluster(self, rows: Rows) -> tuple[str, list[Rows]]:
        self._table.cluster(by=["v"])
        return "our clustering", [rows]

    def _clean(self, rows: Rows) -> tuple[str, list[Rows]]:
        self._table.clean(retain_commits=self._draw.choice([1, 3]))
        return "our clean", [rows]

    def _refresh(self, rows: Rows) -> tuple[str, list[Rows]]:
        self._table.refresh()
        return "our refresh", [rows]

    def _reopen(self, rows: Rows) -> tuple[str, list[Rows]]:
        self._table = mdt.open(self._path)
        return "opened again", [rows]


MODES = ("before", "after", "torn")
