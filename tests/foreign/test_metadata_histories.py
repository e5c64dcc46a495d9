"""Hudi reads with the metadata table that our commits update in random histories. Hudi's writers
then update it, too.

MDT_HUDI_METADATA_HISTORIES is the number of histories, by default 4. Eight have each version and
type, with and without partitions. A longer campaign has 40.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from compare_states import EQUAL, difference, filters
from counting import count
from follower import replayable, rows_of
from hudi_kinds import METADATA_TABLE
from hudi_session import HudiSession, Refused
from hudi_table import COW, MOR
from our_steps import HudiIsAtWork, OurStep, OurSteps, Rows
from random_steps import CITIES, RandomSteps
from test_our_column_stats import SKIPPING, our_slices
from test_our_column_stats import compare as compare_filters
from test_our_metadata_table import hudi_options
from test_our_record_index import BY_INDEX, WRITER, look_up

import mdt
from mdt.commit.metadata_partitions import PARTITIONS
from mdt.hudi.avro_schema import FILE_NAME, META_FIELDS, PARTITION_PATH, RECORD_KEY
from mdt.hudi.metadata_table_files import COLUMN_STATS, FILES, RECORD_INDEX
from mdt.hudi.read.key_indexes import load_key_indexes
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import LocalStorage

HISTORIES = int(os.environ.get("MDT_HUDI_METADATA_HISTORIES", "4"))
PHASES = (10, 4, 2, 4, 2)
"""Numbers of steps: first of mdt, then of Hudi, and so on in turns."""
COMPARED_EVERY = 3
"""Steps of the first phase between comparisons."""
MARKS = ("", "é", "\ud7ff", "\x01")
"""First characters of new keys. Java and HFiles order all of them alike."""
READER = BY_INDEX | SKIPPING
REFUSED_MAX = 0.5
"""Share of the steps after the first phase that Hudi or mdt may refuse."""
OUR_OPTIONS = {
    **{name: "true" for name in READER if name.startswith("hoodie.metadata")},
    "mdt.rollback.after.seconds": 1,
    "mdt.metadata.compact.records": 3,
}


class MetadataSteps(RandomSteps):
    """Random steps of Hudi that update its metadata table and find rows with it."""

    def __init__(self, seed: int, version: int, kind: str, partition_by: list[str]) -> None:
        super().__init__(seed, version)
        self.kind, self._is_flat = kind, not partition_by
        self._has_buckets = False
        self.options = {
            **METADATA_TABLE,
            **WRITER,
            **SKIPPING,
            **hudi_options(partition_by),
            "hoodie.record.index.update.partition.path": "true",
        }

    def _weights(self):
        weights = {
            self._upsert: 4,
            self._late_upsert: 1,
            self._move: 2,
            self._delete: 2,
            self._sql_update: 2,
            self._sql_delete: 2,
            self._sql_merge: 2,
            self._clean: 1,
            self._rollback: 1,
            self._die: 1.5,
            self._cluster: 0.7,
        }
        if self.kind == MOR:
            weights[self._compact] = 1
        return weights

    def _move(self):
        """Upsert rows in a single city."""
        city = self._draw.choice(CITIES)
        return self._write("upsert", self._numbers(12), columns={"city": f"'{city}'"})


class UnsharedSteps(OurSteps):
    """Random steps of ours, with overwrites and restores, which :class:`OurSteps` does not have."""

    def _weights(self) -> dict[OurStep, float]:
        return super()._weights() | {self._overwrite: 1, self._restore: 1}

    def _new_key(self) -> str:
        return self._draw.choice(MARKS) + super()._new_key()

    def _overwrite(self, rows: Rows) -> tuple[str, list[Rows]]:
        """Replace the partition of some rows, or the whole table without partitions."""
        changed = self._changed(rows)
        if self._table.definition.partition_by:
            city = self._draw.choice(CITIES)
            changed = [{**row, "city": city} for row in changed]
        self._table.insert_overwrite(self._as_table(changed))
        after = {self.key_of(row): row for row in changed}
        if self._table.definition.partition_by:
            after = {k: row for k, row in rows.items() if row["city"] != city} | after
        return f"our overwrite by {[*map(self.key_of, changed)]}", [after]

    def _restore(self, rows: Rows) -> tuple[str, list[Rows]]:
        """Return to a savepoint after an upsert and a delete. Tables with writes of Hudi get a tag
        instead of a savepoint.
        """
        is_shared = self._table.snapshot().is_shared
        save = self._table.tag if is_shared else self._table.savepoint
        save("saved")
        names = [step(rows)[0] for step in (self._upsert, self._delete)]
        self._table.restore("saved")
        self._table.untag("saved")
        return f"our restore after {names}", [rows]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_hudi_reads_and_writes_with_our_metadata_table_in_random_histories(seed, tmp_path, request):
    with (
        replayable(f"MDT_HUDI_METADATA_HISTORIES={seed + 1}", request) as done,
        HudiSession(tmp_path / "session") as hudi,
    ):
        History(hudi, tmp_path / "kept", seed, done).run()


class History:
    """A history of a table with Hudi's metadata table."""

    def __init__(self, hudi: HudiSession, path: Path, seed: int, done: list[str]) -> None:
        """Create the table.

        Args:
            done: List to which the names of the steps are appended, even if a comparison fails.
        """
        kinds = list(product((6, 9), (MOR, COW), (["city"], [])))
        version, kind, partition_by = kinds[(3 * seed + seed // 8) % len(kinds)]
        self._hudi, self._path, self._done = hudi, path, done
        self._draw = random.Random(seed)
        self._hudis = MetadataSteps(seed, version, kind, partition_by)
        self._refused = 0
        self._is_shared = False
        done.append(f"version {version}, {kind}, by {partition_by}")
        self._create(version, kind, partition_by)
        self._ours = UnsharedSteps(str(seed), path)

    def _create(self, version: int, kind: str, partition_by: list[str]) -> None:
        """Create the table with rows of Hudi."""
        source, options = self._path.with_name("made"), self._hudis.options
        self._hudi.create(source, version, kind, hudi_options(partition_by))
        self._hudis.first()[1](self._hudi, source)
        rows = mdt.open(source).scan().to_arrow()
        key_index = self._draw.choice(["record", "bloom", "simple"])
        self._done.append(f"key index {key_index}")
        table = mdt.create(
            self._path,
            rows.schema,
            key=["id"],
            partition_by=partition_by,
            ordering="ts",
            scope="table",
            table_type=kind,
            version=version,
            key_index=key_index,
            options=OUR_OPTIONS
            | {"mdt.write.footer.bloom": True, "mdt.services.auto": self._draw.random() < 0.5},
        )
        table.insert(rows)
        self._hudi.create(self._path, version, kind, options)

    def run(self) -> None:
        """Carry out all steps."""
        for number, steps in enumerate(PHASES):
            for step in range(steps):
                if number % 2:
                    self._hudi_writes()
                else:
                    self._we_write()
                if number or step % COMPARED_EVERY == 0 or step == steps - 1:
                    self._compare()
            if number % 2 == 0 and self._draw.random() < 0.5:
                self._we_die()
        count("histories of Hudi's metadata table", 1)
        count("steps that were refused beside Hudi's metadata table", self._refused)
        assert self._refused <= REFUSED_MAX * sum(PHASES[1:])

    def _rows(self) -> Rows:
        """Return our rows without meta columns, by key."""
        rows = mdt.open(self._path).scan().to_arrow()
        return {self._ours.key_of(row): row for row in rows.to_pylist()}

    def _we_write(self) -> None:
        before = self._rows()
        try:
            name, states = self._ours.next(before)
        except HudiIsAtWork as error:
            self._refused += 1
            self._done.append(f"refused {error}")
            return
        self._done.append(name)
        if self._ours.has_unpublished_commit():
            self._compare_with_metadata()
            assert self._ours.settle(), "Hudi has a pending write, although none is in flight"
        assert self._rows() in states

    def _we_die(self) -> None:
        """Let a writer of ours crash at random. Hudi's next step starts from this state."""
        try:
            name, _ = self._ours.carry_out(self._ours.crash, self._rows())
        except HudiIsAtWork as error:
            name = f"refused {error}"
        self._done.append(name)
        self._compare_with_metadata()

    def _hudi_writes(self) -> None:
        name, step = self._hudis.next()
        self._is_shared = True
        try:
            step(self._hudi, self._path)
        except Refused as error:
            self._refused += 1
            name += f" -- refused: {str(error)[:300]} … {str(error)[-600:]}"
        self._done.append(name)

    def _compare_with_metadata(self) -> pa.Table:
        """Compare the rows that Hudi reads with and without its metadata table, and return them."""
        rows = self._hudi.rows(self._path)
        assert difference(self._hudi.rows(self._path, **READER), rows) == EQUAL
        return rows

    def _compare(self) -> None:
        """Compare the rows of Hudi with its metadata table, of Hudi without it, and of mdt."""
        rows = self._compare_with_metadata()
        assert difference(rows_of(mdt.open(self._path).readable()), rows) == EQUAL
        keys = rows[RECORD_KEY].to_pylist()
        assert len(keys) == len(set(keys)), "a key has several rows"
        partitions = self._partitions()
        if not self._is_shared:
            assert partitions == {FILES, COLUMN_STATS, RECORD_INDEX}
            report = mdt.open(self._path).check()
            assert report.ok, report.problems
        if keys:
            sample = self._draw.sample(keys, min(8, len(keys)))
            look_up(self._hudi, self._path, [*sample[:3], "never"], sample)
            self._compare_filters(rows)
        if RECORD_INDEX in partitions:
            self._compare_locations(rows)
        count(f"comparisons with {', '.join(sorted(partitions)) or 'no partitions'}")

    def _partitions(self) -> set[str]:
        """Return the partitions of the metadata table."""
        stored = read_properties(LocalStorage(self._path)) or {}
        return set(filter(None, stored.get(PARTITIONS, "").split(",")))

    def _compare_filters(self, rows: pa.Table) -> None:
        """Compare the rows that pass filters. Hudi may read only few more file slices than mdt."""
        wheres = [where for where, _ in filters(rows.drop_columns(list(META_FIELDS)))]
        wheres = self._draw.sample(wheres, 4) + [*self._narrow(rows)]
        for where, slices in compare_filters(self._hudi, self._path, wheres).items():
            if not self._is_shared and "id " not in where and "city " not in where:
                slices_max = our_slices(self._path, where) + self._outdated_slices()
                assert slices <= slices_max, where
            count("filters by Hudi's column statistics")

    def _outdated_slices(self) -> int:
        """Return the number of file slices with a file whose rows are all deleted. Only mdt skips
        such a file, because its statistics are those of the deleted rows.
        """
        snapshot = mdt.open(self._path).snapshot()
        is_deleted = (snapshot.rows > 0) & (snapshot.rows == snapshot.dead_rows)
        outdated = np.flatnonzero(snapshot.live & is_deleted)
        return len(snapshot.files.take(["file_id"], outdated)["file_id"].unique())

    def _narrow(self, rows: pa.Table) -> Iterator[str]:
        """Yield filters that match rows of a few files only."""
        values = sorted(rows["v"].drop_null().to_pylist())
        if values:
            yield f"v = {self._draw.choice(values)}"
            yield f"v > {values[-1]} or ts = {self._draw.choice(rows['ts'].to_pylist())}"

    def _compare_locations(self, rows: pa.Table) -> None:
        """Assert that the record index has exactly the keys of the rows, and their locations."""
        indexes = load_key_indexes(LocalStorage(self._path))
        assert indexes is not None
        entries = {entry["key"]: entry for entry in indexes.records(RECORD_INDEX).to_pylist()}
        live = rows.select([RECORD_KEY, PARTITION_PATH, FILE_NAME]).to_pylist()
        assert entries.keys() == {row[RECORD_KEY] for row in live}
        for row in live:
            entry = entries[row[RECORD_KEY]]
            assert entry["partition"] == row[PARTITION_PATH], row
            assert row[FILE_NAME].startswith(entry["file_id"]), row
        count("entries of the record index", len(live))
