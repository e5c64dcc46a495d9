"""Tasks read deletion vectors from the metadata of the table, verify them and cache them. Small
vectors are sent with the tasks.
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
    """Base files without deleted rows, with some, with many and with runs of them, and blocks of
    log files with deleted rows. All are in a checkpoint.
    """
    created = create(
        path, SCHEMA, table_type="MERGE_ON_READ", indexes=["bitmap(v)"], options=OPTIONS
    )
    created.bulk_insert(rows(range(ROWS)))
    created.upsert(rows(range(0, ROWS // 2, 3), 2000))
    created.delete({"id": [*range(500), *range(7000, 7500), 11_999]})
    created.upsert(rows(range(600, 1200, 9), 5000))
    created.metadata.compact()
    assert len(created.files()) > 8
    return mdt.open(path, OPTIONS)


@pytest.fixture
def table(tmp_path):
    return new_table(tmp_path / "t t")


@pytest.fixture
def metrics_session(spark):
    """A session with metrics of plans."""
    mdt.spark.enable(spark)
    spark.conf.set("spark.mdt.explain", "metrics")
    yield spark
    for name in ("explain", "vectors.bytes"):
        spark.conf.unset(f"spark.mdt.{name}")


@pytest.fixture
def by_reference(monkeypatch):
    """All deletion vectors are read by reference. None is sent with tasks."""
    set_inline_limit(monkeypatch, ALWAYS)


def set_inline_limit(patch, limit):
    patch.setattr(native_files, "INLINE_VECTOR_BYTES_MAX", limit)
    patch.setattr(native_files, "INLINE_VECTORS_PAGE_BYTES_MAX", limit)


def deletion_vectors(table):
    """Return the deletion vectors of all files with deleted rows, as they are sent to tasks."""
    view = SnapshotFiles(table.snapshot(), table.storage, compares=True, refers=True)
    return view.dead(np.flatnonzero(view.native().has_dead).tolist())


def counts(metrics_session, table, where="v >= 0"):
    """Return how many vectors a query finds in executors, and how many it reads."""
    (metrics,) = figures(metrics_session, mdt.read(metrics_session, table.path).where(where))
    return number(metrics, FOUND), number(metrics, READ)


def number(metrics, name):
    return int(metrics[name].replace(",", ""))


def object_of(table):
    """Return the object that contains the deletion vectors."""
    ((uri, _),) = deletion_vectors(table).objects
    (path,) = Path(table.storage.local_path("") or "").glob(".hoodie/.mdt/checkpoints/*pages-0")
    assert uri.endswith(path.name) and "%20" in uri
    return path


def test_small_vectors_are_sent_inline_and_larger_ones_by_reference(table):
    table.delete({"id": [502, 505, 600, 8000]})
    snapshot, vectors = table.snapshot(), deletion_vectors(table)
    view = SnapshotFiles(snapshot, table.storage, compares=True, refers=True)
    numbers = view.numbers[view.native().has_dead].tolist()
    kinds = set()
    data = object_of(table).read_bytes()
    for at, file in enumerate(numbers):
        stored, inline = vectors.object[at] >= 0, vectors.bitmaps[at]
        begin, length = int(vectors.offset[at]), int(vectors.length[at])
        referenced = BitMap.deserialize(data[begin : begin + length]) if stored else BitMap()
        assert (
            not stored
            or length > native_files.INLINE_VECTOR_BYTES_MAX
            and vectors.rows[at] == len(referenced)
        )
        added = BitMap() if inline is None else BitMap.deserialize(inline)
        assert added | referenced == snapshot.vector(file) and not added & referenced
        kinds.add((bool(stored), inline is not None))
    assert kinds == {(True, False), (False, True), (True, True)}


@pytest.mark.parametrize("limit", [ALWAYS, 256, NEVER])
@pytest.mark.parametrize(
    "setting", ["", "spark.sql.parquet.enableVectorizedReader", "spark.sql.codegen.wholeStage"]
)
def test_rows_are_those_of_a_scan_in_process_with_inline_and_referenced_vectors(
    spark, table, monkeypatch, limit, setting
):
    set_inline_limit(monkeypatch, limit)
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
                # in files whose deletion vectors in the checkpoint are older
                table.delete({"id": [*range(2, 5000, 101)]})
            if step == 1:
                table.upsert(rows(range(8000, 9000, 13), 7000))
                table.metadata.compact()
    finally:
        spark.conf.unset(setting or "spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_a_table_without_deleted_rows_has_no_metrics_of_deletion_vectors(
    metrics_session, tmp_path, by_reference
):
    clean = create(tmp_path / "c", SCHEMA)
    clean.bulk_insert(rows(range(100)))
    clean.metadata.compact()
    (metrics,) = figures(metrics_session, mdt.read(metrics_session, clean.path).where("v >= 0"))
    assert FOUND not in metrics and READ not in metrics


def test_an_executor_caches_deletion_vectors_within_its_limit(metrics_session, table, by_reference):
    dirty = int((table.snapshot().dead_rows > 0).sum())
    metrics_session.conf.set("spark.mdt.vectors.bytes", "0")
    assert (
        dirty > 5
        and counts(metrics_session, table) == (0, dirty)
        and counts(metrics_session, table) == (0, dirty)
    )
    metrics_session.conf.set("spark.mdt.vectors.bytes", "3000")
    assert counts(metrics_session, table) == (0, dirty)
    cached, read = counts(metrics_session, table)
    assert cached + read == dirty and read > 0, "together they exceed the limit"
    metrics_session.conf.unset("spark.mdt.vectors.bytes")
    counts(metrics_session, table)
    assert counts(metrics_session, table) == (dirty, 0)
    table.delete({"id": [8001]})
    assert counts(metrics_session, table) == (dirty, 0), (
        "new deletes are sent inline, and the vectors in the checkpoint are unchanged"
    )


@pytest.mark.parametrize("place", ["begin", "middle", "end"])
def test_a_flipped_byte_raises_corrupt_with_a_hint(spark, table, by_reference, place):
    vectors, expected = deletion_vectors(table), ordered(table.scan().to_arrow())
    at = int(np.argmax(vectors.length))
    begin, length = int(vectors.offset[at]), int(vectors.length[at])
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


def test_a_truncated_or_missing_object_raises(spark, table, by_reference):
    path, original = object_of(table), object_of(table).read_bytes()
    end = int(np.max(deletion_vectors(table).offset)) + 3
    spark.conf.set("spark.mdt.vectors.bytes", "0")
    frame = mdt.read(spark, table.path)
    spark.conf.unset("spark.mdt.vectors.bytes")
    assert len(frame.toArrow()) == table.scan().count()
    frame.createOrReplaceTempView("ends_early")
    path.unlink()  # the driver has mapped the old file and still reads from it
    path.write_bytes(original[:end])
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
def test_a_forged_reference_raises_corrupt(
    spark,
    table,
    by_reference,
    monkeypatch,
    forged,
):
    real = SnapshotFiles.dead

    def wrong(view, at):
        vectors = real(view, at)
        if forged == "another vector":  # bytes and checksum agree, but belong to another file
            for values in (vectors.offset, vectors.length, vectors.crc):
                values[:] = np.roll(values, 1)
        elif forged == "another crc":
            vectors.crc[:] += 1
        elif forged == "another count":
            vectors.rows[:] -= 1
        else:
            vectors.offset[:] += 1
            vectors.length[:] -= 1
        return vectors

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
def test_a_forged_inline_bitmap_raises_corrupt(spark, table, monkeypatch, kind):
    set_inline_limit(monkeypatch, NEVER)
    monkeypatch.setattr(Columns, "vector_bytes", lambda columns, files: [FORGED[kind]] * len(files))
    with pytest.raises(
        Corrupt, match="the deletion vector of a data file is not as it was written"
    ):
        mdt.read(spark, table.path).toArrow()


def test_a_checkpoint_without_references_is_read(spark, table, by_reference, monkeypatch):
    expected = ordered(table.scan().to_arrow())
    monkeypatch.setattr(
        "mdt.metadata.snapshot.stored_columns.StoredColumns.vectors", Columns.vectors
    )
    assert not deletion_vectors(table).objects
    assert ordered(mdt.read(spark, table.path).toArrow()) == expected


def test_neighbouring_vectors_on_a_remote_store_are_read_together(
    metrics_session, table, by_reference, monkeypatch
):
    monkeypatch.setattr(type(table.storage), "is_remote", True)
    path = object_of(table)
    condition, expected = "id between 7000 and 7100", ordered(table.scan("v >= 0").to_arrow())
    assert counts(metrics_session, table, condition)[1] > 0
    vectors, data = deletion_vectors(table), bytearray(path.read_bytes())
    begin, end = int(vectors.offset.min()), int((vectors.offset + vectors.length).max())
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    cached, read = counts(metrics_session, table)
    assert cached > 0 and read > 0, "read from the chunk in memory and verified"
    assert ordered(mdt.read(metrics_session, table.path).where("v >= 0").toArrow()) == expected


def test_a_reader_of_a_cleaned_checkpoint_raises_missing_and_the_next_query_reads(
    metrics_session, table, by_reference, monkeypatch
):
    monkeypatch.setattr("mdt.services.reclaiming.cleaning.ARCHIVE_RECORDS_MIN", 1)
    metrics_session.conf.set("spark.mdt.vectors.bytes", "0")
    old, expected, seq = object_of(table), ordered(table.scan().to_arrow()), table.snapshot().seq
    frame, planned = (
        mdt.read(metrics_session, table.path),
        mdt.read(metrics_session, table.path).where("v >= 0"),
    )
    assert len(planned.collect()) == frame.count() == len(expected)
    for n in range(4):
        table.insert(rows(range(ROWS + n, ROWS + n + 1)))
        table.metadata.compact()
    with mdt.open(table.path, OPTIONS).leased(as_of=seq):
        table.clean(retain_commits=1)
        assert table.snapshot().retention.horizon <= seq and old.exists(), (
            "a lease keeps the checkpoint of its state"
        )
        assert len(planned.collect()) == len(expected)
    table.clean(retain_commits=1)
    assert not old.exists()
    with pytest.raises(Missing, match=r"are missing .*pages-0"):
        planned.collect()
    assert len(frame.where("v >= 0").toArrow()) == len(expected) + 4, (
        "a query that is planned again uses another checkpoint"
    )
