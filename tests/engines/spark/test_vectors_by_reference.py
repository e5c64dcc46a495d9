"""Tasks read deletion vectors where these stand in the metadata, compare them, and keep them; small
ones they are given.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from plan_metrics import figures
from pyroaring import BitMap
from texts import columns
from trees import create, ordered

import mdt
import mdt.spark
from mdt.engines.spark import native_files
from mdt.engines.spark.native_files import SnapshotFiles
from mdt.errors import Corrupt, Missing
from mdt.metadata.log.checkpoint_columns import Columns

ROWS = 12_000
SCHEMA = columns("id int64, v int64, note string")
FOUND, READ = "deletion vectors found in executors", "deletion vectors read by executors"
ALWAYS, NEVER = 0, 1 << 30
OPTIONS = {"mdt.max.file.bytes": 60_000, "mdt.metadata.compact.records": 1000}


def rows(ids, plus=0):
    return pa.table(
        [
            list(ids),
            [i * 7919 % 997 + plus for i in ids],
            [f"{i * 2654435761**2 % 2**60:x}" for i in ids],
        ],
        schema=SCHEMA,
    )


def new_table(path):
    """Base files without dead rows, with some, with many and with runs, blocks of log files with
    dead rows of their own; in a checkpoint.
    """
    made = create(path, SCHEMA, table_type="MERGE_ON_READ", indexes=["bitmap(v)"], options=OPTIONS)
    made.bulk_insert(rows(range(ROWS)))
    made.upsert(rows(range(0, ROWS // 2, 3), 2000))
    made.delete({"id": [*range(500), *range(7000, 7500), 11_999]})
    made.upsert(rows(range(600, 1200, 9), 5000))
    made.metadata.compact()
    assert len(made.files()) > 8
    return mdt.open(path, OPTIONS)


@pytest.fixture
def table(tmp_path):
    return new_table(tmp_path / "t t")


@pytest.fixture
def told(spark):
    """A session that asks for metrics."""
    mdt.spark.enable(spark)
    spark.conf.set("spark.mdt.explain", "metrics")
    yield spark
    for name in ("explain", "vectors.bytes"):
        spark.conf.unset(f"spark.mdt.{name}")


@pytest.fixture
def referred(monkeypatch):
    """None is so small that tasks are given it."""
    small_is(monkeypatch, ALWAYS)


def small_is(patch, limit):
    patch.setattr(native_files, "INLINE_VECTOR_BYTES_MAX", limit)
    patch.setattr(native_files, "INLINE_VECTORS_PAGE_BYTES_MAX", limit)


def dead_rows(table):
    """Return what is told of all files with dead rows."""
    view = SnapshotFiles(table.snapshot(), table.storage, compares=True, refers=True)
    return view.dead(np.flatnonzero(view.native().has_dead).tolist())


def counts(told, table, where="v >= 0"):
    """Return how many vectors a query finds, and how many it reads."""
    (found,) = figures(told, mdt.read(told, table.path).where(where))
    return number(found, FOUND), number(found, READ)


def number(found, name):
    return int(found[name].replace(",", ""))


def object_of(table):
    """Return the object in which the deletion vectors stand."""
    ((uri, _),) = dead_rows(table).objects
    (path,) = Path(table.storage.local_path("") or "").glob(".hoodie/.mdt/checkpoints/*pages-0")
    assert uri.endswith(path.name) and "%20" in uri
    return path


def test_small_vectors_are_given_and_larger_ones_are_referred_to(table):
    table.delete({"id": [502, 505, 600, 8000]})
    snapshot, found = table.snapshot(), dead_rows(table)
    view = SnapshotFiles(snapshot, table.storage, compares=True, refers=True)
    numbers = view.numbers[view.native().has_dead].tolist()
    kinds = set()
    data = object_of(table).read_bytes()
    for at, file in enumerate(numbers):
        stored, here = found.object[at] >= 0, found.bitmaps[at]
        begin, length = int(found.offset[at]), int(found.length[at])
        elsewhere = BitMap.deserialize(data[begin : begin + length]) if stored else BitMap()
        assert (
            not stored
            or length > native_files.INLINE_VECTOR_BYTES_MAX
            and found.rows[at] == len(elsewhere)
        )
        added = BitMap() if here is None else BitMap.deserialize(here)
        assert added | elsewhere == snapshot.vector(file) and not added & elsewhere
        kinds.add((bool(stored), here is not None))
    assert kinds == {(True, False), (False, True), (True, True)}


@pytest.mark.parametrize("limit", [ALWAYS, 256, NEVER])
@pytest.mark.parametrize(
    "setting", ["", "spark.sql.parquet.enableVectorizedReader", "spark.sql.codegen.wholeStage"]
)
def test_rows_are_those_of_a_scan_in_process(spark, table, monkeypatch, limit, setting):
    small_is(monkeypatch, limit)
    if setting:
        spark.conf.set(setting, "false")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        for step in range(3):
            for where in (
                "id >= 0",
                "v in (5, 77, 2005, 5005)",
                "id between 450 and 620",
                "v > 1990 and id < 3000",
            ):
                expected = ordered(table.scan(where).to_arrow())
                assert (
                    ordered(mdt.read(spark, table.path).where(where).toArrow()) == expected
                    and expected
                )
            assert mdt.read(spark, table.path).count() == table.scan().count()
            if step == 0:
                # of files of which the checkpoint has other dead rows
                table.delete({"id": [*range(2, 5000, 101)]})
            if step == 1:
                table.upsert(rows(range(8000, 9000, 13), 7000))
                table.metadata.compact()
    finally:
        spark.conf.unset(setting or "spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_a_table_without_dead_rows_has_no_such_figures(told, tmp_path, referred):
    clean = create(tmp_path / "c", SCHEMA)
    clean.bulk_insert(rows(range(100)))
    clean.metadata.compact()
    (found,) = figures(told, mdt.read(told, clean.path).where("v >= 0"))
    assert FOUND not in found and READ not in found


def test_an_executor_keeps_what_it_has_read_within_its_limit(told, table, referred):
    dirty = int((table.snapshot().dead_rows > 0).sum())
    told.conf.set("spark.mdt.vectors.bytes", "0")
    assert dirty > 5 and counts(told, table) == (0, dirty) and counts(told, table) == (0, dirty)
    told.conf.set("spark.mdt.vectors.bytes", "3000")
    assert counts(told, table) == (0, dirty)
    found, read = counts(told, table)
    assert found + read == dirty and read > 0, "some of them are larger together"
    told.conf.unset("spark.mdt.vectors.bytes")
    counts(told, table)
    assert counts(told, table) == (dirty, 0)
    table.delete({"id": [8001]})
    assert counts(told, table) == (dirty, 0), (
        "what was added is given, what the checkpoint has is where it was"
    )


@pytest.mark.parametrize("place", ["begin", "middle", "end"])
def test_a_flipped_byte_is_an_error_that_says_what_to_do(spark, table, referred, place):
    found, expected = dead_rows(table), ordered(table.scan().to_arrow())
    at = int(np.argmax(found.length))
    begin, length = int(found.offset[at]), int(found.length[at])
    path = object_of(table)
    data = bytearray(path.read_bytes())
    data[begin + {"begin": 0, "middle": length // 2, "end": length - 1}[place]] ^= 1
    path.write_bytes(data)
    for setting in ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"):
        spark.conf.set(setting, "true")
    try:
        with pytest.raises(
            Corrupt, match=r"not as it was written \[.*pages-0 at byte \d+\] \(expected"
        ) as caught:
            mdt.read(spark, table.path).toArrow()
    finally:
        for setting in ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"):
            spark.conf.unset(setting)
    assert "t.repair()" in caught.value.hint
    mdt.repair(table.path)
    assert ordered(mdt.read(spark, table.path).toArrow()) == expected


def test_an_object_that_ends_early_or_is_gone_is_an_error(spark, table, referred):
    path, whole = object_of(table), object_of(table).read_bytes()
    end = int(np.max(dead_rows(table).offset)) + 3
    spark.conf.set("spark.mdt.vectors.bytes", "0")
    frame = mdt.read(spark, table.path)
    spark.conf.unset("spark.mdt.vectors.bytes")
    assert len(frame.toArrow()) == table.scan().count()
    frame.createOrReplaceTempView("ends_early")
    path.unlink()  # the driver has mapped it, and finds in it what it needs
    path.write_bytes(whole[:end])
    with pytest.raises(Corrupt, match=r"not as it was written .*the object is too short"):
        frame.where("v >= 0").toArrow()
    path.unlink()
    for setting in ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"):
        spark.conf.set(setting, "true")
    try:
        with pytest.raises(
            Missing, match=r"the deletion vectors of data files are missing .*pages-0"
        ) as caught:
            spark.sql("select sum(v) from ends_early").collect()
    finally:
        for setting in ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"):
            spark.conf.unset(setting)
    assert "create the DataFrame again" in caught.value.hint


@pytest.mark.parametrize(
    "forged", ["another vector", "another crc", "another count", "bytes that are none"]
)
def test_a_forged_reference_is_an_error(
    spark,
    table,
    referred,
    monkeypatch,
    forged,
):
    real = SnapshotFiles.dead

    def wrong(view, at):
        found = real(view, at)
        if forged == "another vector":  # bytes and checksum agree, and are those of another file
            for values in (found.offset, found.length, found.crc):
                values[:] = np.roll(values, 1)
        elif forged == "another crc":
            found.crc[:] += 1
        elif forged == "another count":
            found.rows[:] -= 1
        else:
            found.offset[:] += 1
            found.length[:] -= 1
        return found

    monkeypatch.setattr(SnapshotFiles, "dead", wrong)
    with pytest.raises(
        Corrupt, match="the deletion vector of a data file is not as it was written"
    ):
        mdt.read(spark, table.path).toArrow()


GOOD = BitMap([1, 5, 70_000]).serialize()
FORGED = {
    "no bitmap": b"no bitmap of whatever kind",
    "too short": GOOD[:-1],
    "positions that fall": GOOD[:-6] + GOOD[-4:-2] + GOOD[-6:-4] + GOOD[-2:],
    "containers that fall": GOOD[:8] + GOOD[12:16] + GOOD[8:12] + GOOD[16:],
}


@pytest.mark.parametrize("kind", list(FORGED))
def test_a_forged_bitmap_that_is_given_is_an_error(spark, table, monkeypatch, kind):
    small_is(monkeypatch, NEVER)
    monkeypatch.setattr(Columns, "vector_bytes", lambda columns, files: [FORGED[kind]] * len(files))
    with pytest.raises(
        Corrupt, match="the deletion vector of a data file is not as it was written"
    ):
        mdt.read(spark, table.path).toArrow()


def test_a_checkpoint_without_references_is_read_as_ever(spark, table, referred, monkeypatch):
    expected = ordered(table.scan().to_arrow())
    monkeypatch.setattr(
        "mdt.metadata.snapshot.stored_columns.StoredColumns.vectors", Columns.vectors
    )
    assert not dead_rows(table).objects
    assert ordered(mdt.read(spark, table.path).toArrow()) == expected


def test_of_a_far_store_neighbours_are_read_at_once(told, table, referred, monkeypatch):
    monkeypatch.setattr(type(table.storage), "is_remote", True)
    path = object_of(table)
    some, every = "id between 7000 and 7100", ordered(table.scan("v >= 0").to_arrow())
    assert counts(told, table, some)[1] > 0
    where, data = dead_rows(table), bytearray(path.read_bytes())
    begin, end = int(where.offset.min()), int((where.offset + where.length).max())
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    found, read = counts(told, table)
    assert found > 0 and read > 0, "from the chunk that is in memory, and compared"
    assert ordered(mdt.read(told, table.path).where("v >= 0").toArrow()) == every


def test_a_reader_of_a_checkpoint_that_was_cleaned_is_told_so_and_the_next_one_reads(
    told, table, referred, monkeypatch
):
    monkeypatch.setattr("mdt.services.reclaiming.cleaning.ARCHIVE_RECORDS_MIN", 1)
    told.conf.set("spark.mdt.vectors.bytes", "0")
    old, expected, seq = object_of(table), ordered(table.scan().to_arrow()), table.snapshot().seq
    frame, planned = mdt.read(told, table.path), mdt.read(told, table.path).where("v >= 0")
    assert len(planned.collect()) == frame.count() == len(expected)
    for n in range(4):
        table.insert(rows(range(ROWS + n, ROWS + n + 1)))
        table.metadata.compact()
    with mdt.open(table.path, OPTIONS).leased(as_of=seq):
        table.clean(retain_commits=1)
        assert table.snapshot().retention.horizon <= seq and old.exists(), (
            "who reads a state has what it stands on"
        )
        assert len(planned.collect()) == len(expected)
    table.clean(retain_commits=1)
    assert not old.exists()
    with pytest.raises(Missing, match=r"are missing .*pages-0"):
        planned.collect()
    assert len(frame.where("v >= 0").toArrow()) == len(expected) + 4, (
        "a query that is planned anew stands on another"
    )
