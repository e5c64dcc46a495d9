"""Inputs that do not fit into memory are written with the same result as in memory, whatever fails
on the way, and leave no scratch files.
"""

import errno
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from spilled import SpilledTable, forms, in_pieces
from texts import columns
from worlds import COW, MOR, assert_clean, meanwhile

import mdt
from mdt.engines import spilled
from mdt.engines.spilled import Spiller, SpillingEngine, part_by
from mdt.engines.tasks import CONTROL
from mdt.errors import Invalid, MdtError, Unavailable
from mdt.schema.convert import with_nulls
from mdt.schema.input import to_table
from mdt.stores.scratch import Scratch
from mdt.stores.storage import MemoryStorage
from mdt.write.by_name import RowWrite
from mdt.write.operations import RowOperation


def created(kind=mdt.Table, **more):
    """Return an empty table of the given class."""
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], **more)
    return table if kind is mdt.Table else kind(table.storage)


SMALL = {"mdt.write.memory.max": 1}
MEMORY_BESIDE = 72 << 20
"""Memory that a write may use in addition to its limit: threads, Parquet readers and writers, and
memory-mapped key maps.
"""
MEMORY_BESIDE_REWRITES = 130 << 20
"""The same for a write that rewrites a base file: one row group before and after, with the arrays
derived from its rows.
"""
SCHEMA = columns("id string, city string, ts int64, fare float64, note large_string, at time64[ns]")


def data(seed, size=40, keys=60):
    """Random rows. Some keys repeat."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "id": [f"k{n}" for n in draw.integers(0, keys, size)],
            "city": draw.choice(["Oslo", "Rome", "Bern"], size),
            "ts": draw.integers(0, 5, size),
            "fare": draw.random(size),
            "note": draw.choice(["", "é", "x" * 50], size),
            "at": pa.array(draw.integers(0, 10**6, size) * 1000, pa.int64()).cast(pa.time64("ns")),
        },
        schema=SCHEMA,
    )


def visible_rows(table):
    return sorted(
        table.scan().to_arrow().to_pylist(),
        key=lambda row: (row["id"], row["city"], row["ts"], row["fare"]),
    )


WRITES = {
    "upsert": lambda t, d: t.upsert(d),
    "insert": lambda t, d: t.insert(d),
    "bulk_insert": lambda t, d: t.bulk_insert(d),
    "insert_overwrite": lambda t, d: t.insert_overwrite(d),
    "insert_overwrite_table": lambda t, d: t.insert_overwrite_table(d),
    "mergers": lambda t, d: t.upsert(d, mergers={"fare": "sum", "note": "coalesce"}),
    "partial": lambda t, d: t.upsert(to_table(d).drop_columns(["note", "fare"]), partial=True),
}


@pytest.mark.parametrize(
    "shape", [0, 3, *(pytest.param(shape, marks=pytest.mark.nightly) for shape in (1, 2, 4, 5))]
)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_gives_the_same_result_whether_or_not_its_rows_fit_into_memory(name, shape):
    """Compares counts, rows and errors. Of several rows with one key the same one is stored, with
    and without ordering values.
    """
    more = {
        "ordering": "ts" if shape % 2 == 0 else None,
        "scope": "table" if shape in (2, 3) else "partition",
        "table_type": (COW, MOR)[shape % 3 > 0],
        "partition_by": ["city"] if shape < 5 else [],
    }
    tables = [created(kind, **more) for kind in (mdt.Table, SpilledTable)]
    for table in tables:
        table.upsert(data(1))
    for seed in range(2, 4):
        keys = 60 + 1000 * (name != "upsert") * (seed == 3)
        source = data(seed, 20 if name != "insert" else 2, keys)
        outcomes = []
        for table in tables:
            try:
                result = WRITES[name](table, source)
                outcomes.append((result.inserted, result.updated, result.deleted, result.late))
            except MdtError as error:
                outcomes.append((type(error), error.hint))
        assert outcomes[0] == outcomes[1]
        assert visible_rows(tables[0]) == visible_rows(tables[1])
    assert_clean(tables[1].storage)


def test_every_form_of_input_in_pieces_is_spilled_to_disk(tmp_path, monkeypatch):
    flushes = []
    monkeypatch.setattr(
        Spiller, "flush", lambda self, flush=Spiller.flush: flushes.append(flush(self))
    )
    source = data(1, 30, 1000)
    for number, form in enumerate(forms(source, tmp_path)):
        table = created(options=SMALL)
        flushes.clear()
        assert table.upsert(form).inserted == 30
        assert flushes, f"form {number} was held in memory"
        assert visible_rows(table) == sorted(source.to_pylist(), key=lambda row: row["id"])


def test_input_already_in_memory_and_small_input_use_no_scratch_file(
    monkeypatch,
):
    monkeypatch.setattr(Scratch, "__init__", lambda *_: pytest.fail("a scratch file"))
    table = created(options=SMALL)
    assert table.upsert(data(1)).inserted
    assert table.upsert(data(1).to_pandas().assign(at=None)).updated
    table = created()
    assert table.upsert(data(1).to_reader(max_chunksize=4)).inserted
    assert table.upsert(iter([])).inserted == 0
    assert table.upsert(row for row in data(2).to_pylist()).updated


@pytest.mark.parametrize(
    "pieces, why",
    [
        ([data(1), data(2).append_column("more", [[1] * 40])], "'more' is not in the table"),
        ([data(1).drop_columns(["at"])] * 2, "'at' is missing"),
        (
            [data(1), data(2).set_column(2, "ts", [["x"] * 40])],
            "the pieces of the data have different columns",
        ),
        ([data(1).slice(0, 30), data(2).set_column(0, "id", [[None] * 40])], "null"),
        ([data(1), 7], "an item of type int"),
    ],
)
def test_pieces_with_wrong_columns_or_values_are_refused_in_memory_and_spilled(pieces, why):
    for kind in (mdt.Table, SpilledTable):
        table = created(kind)
        with pytest.raises(Invalid, match=why):
            request = RowWrite(table.metadata, table.options, "upsert")
            mdt.Table._write_rows(table, iter(pieces), request, table.snapshot())
        assert table.scan().count() == 0
        assert_clean(table.storage)


def test_new_keys_in_pieces_fill_buckets_that_have_no_file_yet():
    storage, new = MemoryStorage(), pa.table({"id": [f"k{n}" for n in range(40)]})
    mdt.create(storage, new.schema, key=["id"], key_index="bucket(buckets='3')")
    table = SpilledTable(storage)
    repeated = pa.table({"id": ["k0", "k1", "k0", "k2"]})
    with pytest.raises(Invalid, match="takes new keys only; 1 rows repeat a key"):
        table.insert(repeated)
    assert table.insert(new).inserted == table.scan().count() == 40


def test_columns_of_view_types_are_spilled():
    """pyarrow cannot gather rows of view types."""
    view, views = pa.string_view(), pa.list_(pa.struct([("b", pa.binary_view())]))
    source = pa.table(
        {"id": [f"k{n}" for n in range(20)], "v": [[{"b": b"x" * n}] for n in range(20)]}
    ).cast(pa.schema([("id", view), ("v", views)]))
    for declared in (source.schema, pa.schema([("id", pa.string()), ("v", views)])):
        tables = [
            mdt.create(MemoryStorage(), declared, key=["id"], options=options)
            for options in ({}, SMALL)
        ]
        for table in tables:
            table.upsert(source.to_reader(max_chunksize=4))
            assert (
                table.delete(source.slice(15).select(["id"]).to_reader(max_chunksize=2)).deleted
                == 5
            )
            table.merge(
                source.slice(0, 5).to_reader(max_chunksize=2)
            ).when_matched().delete().execute()
        assert tables[0].scan().to_arrow().to_pylist() == tables[1].scan().to_arrow().to_pylist()
        assert tables[1].scan().count() == 10


def test_the_error_for_a_value_out_of_range_counts_rows_across_all_pieces():
    table = mdt.create(MemoryStorage(), columns("id string, n int8"), key=["id"], options=SMALL)
    pieces = [pa.table({"id": [f"k{n}"], "n": [n if n != 7 else 300]}) for n in range(10)]
    with pytest.raises(Invalid, match=r"row 7 \(id='k7'\) has 300"):
        table.upsert(iter(pieces))


def test_a_column_missing_from_some_pieces_is_null_in_their_rows():
    table, expected = created(options=SMALL), created()
    table.upsert(iter([data(1).drop_columns(["note"]), data(2)]))
    expected.upsert([data(1).drop_columns(["note"]), data(2)])
    assert visible_rows(table) == visible_rows(expected)


def failing(after):
    for number, batch in enumerate(data(5, 40, 1000).to_batches(max_chunksize=4)):
        if number == after:
            raise OSError("the source is gone")
        yield batch


@pytest.mark.parametrize("as_reader", [False, True])
@pytest.mark.parametrize("after", [1, 9])
def test_a_source_that_fails_halfway_leaves_no_files_and_no_open_handles(
    tmp_path, after, as_reader
):
    folder, scratch_folder = tmp_path / "t", tmp_path / "aside"
    scratch_folder.mkdir()
    options = SMALL | {"mdt.write.spill.dir": str(scratch_folder)}
    table = mdt.create(str(folder), SCHEMA, key=["id"], options=options)
    table.upsert(data(1))
    before = sorted(str(path) for path in folder.rglob("*"))
    open_files = len(os.listdir("/proc/self/fd"))
    batches = failing(after)
    source = pa.RecordBatchReader.from_batches(SCHEMA, batches) if as_reader else batches
    with pytest.raises(OSError, match="the source is gone") as error:
        table.upsert(source)
    assert len(os.listdir("/proc/self/fd")) <= open_files and error.value.__traceback__, (
        "the error must keep no scratch file open"
    )
    with pytest.raises(OSError, match="the source is gone") as error:
        table.upsert(failing(after), evolve=True)
    assert len(os.listdir("/proc/self/fd")) <= open_files
    assert sorted(str(path) for path in folder.rglob("*")) == before
    assert not list(scratch_folder.iterdir())
    assert table.upsert(failing(1000)).inserted


def test_a_full_scratch_disk_raises_and_commits_nothing(monkeypatch):
    table = created(options=SMALL)
    calls, write = [], os.pwrite

    def full(*arguments):
        calls.append(arguments)
        if len(calls) == 50:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments)

    monkeypatch.setattr(os, "pwrite", full)
    why = r"rows cannot be written to a scratch file in .*No space left(.|\n)*mdt.write.spill.dir"
    with pytest.raises(Unavailable, match=why):
        table.upsert(data(5).to_reader(max_chunksize=4))
    assert table.scan().count() == 0
    assert_clean(table.storage)


def test_a_missing_spill_folder_is_refused(tmp_path):
    table = created(options=SMALL | {"mdt.write.spill.dir": str(tmp_path / "no")})
    with pytest.raises(
        Invalid, match=r"a scratch file cannot be created(.|\n)*mdt.write.spill.dir"
    ):
        table.upsert(data(5).to_reader(max_chunksize=4))


def test_progress_reports_files_and_an_exception_in_it_ends_the_write():
    table = created(partition_by=["city"], options=SMALL)
    reports = []
    table.upsert(
        data(5).to_reader(max_chunksize=4), progress=lambda *report: reports.append(report)
    )
    assert reports and reports[-1][0] == reports[-1][1] == len(table.files())
    assert reports == sorted(reports)

    def stop(written, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.upsert(data(6).to_reader(max_chunksize=4), progress=stop)
    table.abort()
    assert_clean(table.storage)


def test_a_concurrent_commit_makes_a_spilled_write_try_again():
    table = created(SpilledTable, table_type=COW)
    other = mdt.open(table.storage)
    other.upsert(data(1))
    with meanwhile(RowOperation, lambda: other.upsert(data(3))):
        assert table.upsert(data(2)).attempts == 2
    expected = created(table_type=COW)
    for seed in (1, 3, 2):
        expected.upsert(data(seed))
    assert visible_rows(table) == visible_rows(expected)
    assert_clean(table.storage)


def test_merges_that_cannot_run_part_by_part_read_their_source_into_memory():
    table = created(options=SMALL)
    source = data(1, 20, 1000)
    table.upsert(source)
    merge = table.merge(source.to_reader(max_chunksize=4), on="source.fare = target.fare")
    assert merge._runner is None
    assert merge.when_matched().update({"note": "'found'"}).execute().updated == 20
    merge = table.merge(source.to_reader(max_chunksize=4)).when_matched().delete()
    assert merge._runner is not None
    new = {"id": "'new'", "city": "source.city", "ts": "source.ts"}
    merge = merge.when_not_matched().insert(new)
    assert merge._runner is None
    assert merge.execute().deleted == 20


def test_sources_with_dictionary_columns_or_varying_columns_are_merged_in_memory():
    table = created(options=SMALL)
    rows = data(1, 20, 1000)
    table.upsert(rows)
    encoded = rows.set_column(1, "city", rows["city"].dictionary_encode())
    for source in (
        encoded.to_reader(max_chunksize=4),
        iter([rows.slice(0, 9), rows.slice(9).append_column("more", [[1] * 11])]),
    ):
        merge = table.merge(source)
        assert merge._runner is None
        assert merge.when_matched().update({"note": "source.note"}).execute().updated == 20


# The components


def test_a_scratch_file_has_no_name_and_returns_the_stored_bytes(tmp_path):
    scratch = Scratch(str(tmp_path))
    offsets = [scratch.append(bytes([n]) * n) for n in range(5)]
    assert [scratch.read(start, n).to_pybytes() for n, start in enumerate(offsets)] == [
        bytes([n]) * n for n in range(5)
    ]
    assert not list(tmp_path.iterdir())
    scratch.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        scratch.read(0, 1)
    assert Scratch()._where == os.path.abspath(tempfile.gettempdir())


def test_grouping_keeps_the_order_of_rows_and_puts_equal_keys_into_one_part():
    engine = SpillingEngine(1 << 20, "", 2)
    kinds = pa.array([n % 7 for n in range(500)], pa.int32())
    tagged = {"__mdt_kind": kinds, "__mdt_n": range(500)}
    table = with_nulls(pa.table(tagged), CONTROL)
    raw = engine.empty(table.schema)
    spiller = engine.spiller(raw, lambda rows: np.zeros(len(rows), np.int64))
    for piece in in_pieces(table, 13):
        spiller.add(piece)
    spiller.flush()
    together = engine.group_by(raw, ["__mdt_kind"])
    assert engine.group_by(together, ["__mdt_kind"]) is together
    last_place = {}
    for part in together.parts:
        for row in pa.Table.from_batches(together.batches([part])).to_pylist():
            place = part, row["__mdt_n"]
            assert last_place.setdefault(row["__mdt_kind"], (part, -1)) <= place
            last_place[row["__mdt_kind"]] = place
    assert len(last_place) == 7
    counts = engine.count_tagged(together).sort_by("__mdt_kind")
    assert counts["rows"].to_pylist() == [72] * 3 + [71] * 4
    assert counts["total"].to_pylist() == [
        sum(n for n in range(500) if n % 7 == k) for k in range(7)
    ]
    assert engine.select(together, 3, ["__mdt_n"], rows_max=5).num_rows == 5
    assert engine.map_shares(lambda share, attempt: share * 2, [1, 2, 3]) == [2, 4, 6]


def test_the_spilling_engine_keeps_no_more_rows_in_memory_than_its_limit():
    engine = SpillingEngine(spilled.SHARE * 1_000_000, "", 2)
    table = pa.table({"k": np.arange(200_000)})
    raw = engine.empty(table.schema, ["k"])
    spiller = engine.spiller(raw, lambda rows: part_by(("k",), rows))
    memory_used = []
    for piece in in_pieces(table, 1000):
        spiller.add(piece)
        memory_used.append(spiller._memory)
    spiller.flush()
    assert max(memory_used) <= 1_000_000
    runs = raw.runs(500_000)
    assert max(memory for _, memory in runs) <= 500_000
    assert sorted(part for parts, _ in runs for part in parts) == list(range(spilled.PARTS))
    in_memory, highest = [0], [0]

    def hold(batches, attempt):
        batch_bytes = sum(spilled.weight(batch.nbytes, len(batch)) for batch in batches)
        in_memory[0] += batch_bytes
        highest[0] = max(highest[0], in_memory[0])
        in_memory[0] -= batch_bytes
        return b"1"

    assert len(engine.collect_results(raw, hold)) == len(runs)
    assert highest[0] <= 1_000_000


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is measured as Linux tells it"
)
def test_writes_use_little_more_memory_than_their_limit(tmp_path):
    """The rows come from a generator. The writes run in a separate process, so that no other memory
    is counted.
    """
    limit, rows = 32 << 20, 600_000
    command = [
        sys.executable,
        str(Path(__file__).with_name("memory_peaks.py")),
        str(tmp_path),
        str(limit),
        str(rows),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.run(command, capture_output=True, check=True, env=environment).stdout
    peaks = json.loads(output)
    kinds = ("an upsert", "a delete", "a delete by condition", "a compaction")
    assert set(peaks) == {"load", "upsert", "delete", *(f"rewrite of {kind}" for kind in kinds)}
    assert max(peaks[kind] for kind in ("load", "upsert", "delete")) <= limit + MEMORY_BESIDE, peaks
    assert max(peaks.values()) <= limit + MEMORY_BESIDE_REWRITES, peaks


def test_a_rewritten_file_counts_toward_the_memory_of_its_task(
    monkeypatch,
):
    """Rows of a rewritten file come from the table, and not from the parts of the input."""
    engine = SpillingEngine(spilled.SHARE * 1_000_000, "", 2)
    rows = engine.distribute(pa.table({"k": [1, 2, 3]}))
    assert len(rows.runs(10_000)) == 1
    with_rewrites = replace(rows, beside={0: 9_900, 1: 9_900})
    assert [parts for parts, _ in with_rewrites.runs(10_000)] == [[0], [1]]
    table = created(SpilledTable, table_type=COW)
    table.upsert(data(1))
    (before,) = table.files().to_pylist()
    assignments, shuffle = [], SpillingEngine.shuffle_to_buckets
    monkeypatch.setattr(
        SpillingEngine,
        "shuffle_to_buckets",
        lambda *arguments: assignments.append(arguments[2]) or shuffle(*arguments),
    )
    table.upsert(data(1))
    assert list(assignments[0].carried.values()) == [(before["size"], before["rows"])]
