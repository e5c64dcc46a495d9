"""Inputs that do not fit into memory: the same as in memory, whatever happens on the way, and
nothing of them is left.
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
    """Return an empty table of a kind."""
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], **more)
    return table if kind is mdt.Table else kind(table.storage)


SMALL = {"mdt.write.memory.max": 1}
MEMORY_BESIDE = 72 << 20
"""What a write may take besides its limit: threads, readers and writers of Parquet, key maps that
are mapped.
"""
MEMORY_BESIDE_REWRITES = 130 << 20
"""The same where a base file is rewritten: a row group of it, as it was and as it will be, with
what is made of its rows.
"""
SCHEMA = columns("id string, city string, ts int64, fare float64, note large_string, at time64[ns]")


def data(seed, size=40, keys=60):
    """Random rows, of which some repeat keys."""
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


def seen(table):
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
def test_a_write_is_the_same_whether_or_not_its_rows_fit_into_memory(name, shape):
    """Counts, rows and errors; also which of the rows with one key stays, with ordering values and
    without.
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
        given = data(seed, 20 if name != "insert" else 2, keys)
        found = []
        for table in tables:
            try:
                done = WRITES[name](table, given)
                found.append((done.inserted, done.updated, done.deleted, done.late))
            except MdtError as error:
                found.append((type(error), error.hint))
        assert found[0] == found[1]
        assert seen(tables[0]) == seen(tables[1])
    assert_clean(tables[1].storage)


def test_whatever_comes_in_pieces_may_be_larger_than_memory(tmp_path, monkeypatch):
    put_aside = []
    monkeypatch.setattr(
        Spiller, "flush", lambda self, flush=Spiller.flush: put_aside.append(flush(self))
    )
    given = data(1, 30, 1000)
    for number, form in enumerate(forms(given, tmp_path)):
        table = created(options=SMALL)
        put_aside.clear()
        assert table.upsert(form).inserted == 30
        assert put_aside, f"form {number} was held in memory"
        assert seen(table) == sorted(given.to_pylist(), key=lambda row: row["id"])


def test_what_a_caller_holds_in_memory_and_what_is_small_goes_through_no_file(
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
def test_pieces_that_do_not_fit_are_refused_as_they_are_in_memory(pieces, why):
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


def test_columns_that_are_views_are_put_aside():
    """pyarrow gathers no rows of them."""
    view, views = pa.string_view(), pa.list_(pa.struct([("b", pa.binary_view())]))
    given = pa.table(
        {"id": [f"k{n}" for n in range(20)], "v": [[{"b": b"x" * n}] for n in range(20)]}
    ).cast(pa.schema([("id", view), ("v", views)]))
    for declared in (given.schema, pa.schema([("id", pa.string()), ("v", views)])):
        tables = [
            mdt.create(MemoryStorage(), declared, key=["id"], options=options)
            for options in ({}, SMALL)
        ]
        for table in tables:
            table.upsert(given.to_reader(max_chunksize=4))
            assert (
                table.delete(given.slice(15).select(["id"]).to_reader(max_chunksize=2)).deleted == 5
            )
            table.merge(
                given.slice(0, 5).to_reader(max_chunksize=2)
            ).when_matched().delete().execute()
        assert tables[0].scan().to_arrow().to_pylist() == tables[1].scan().to_arrow().to_pylist()
        assert tables[1].scan().count() == 10


def test_a_value_that_does_not_fit_is_named_by_its_row_in_all_of_the_data():
    table = mdt.create(MemoryStorage(), columns("id string, n int8"), key=["id"], options=SMALL)
    pieces = [pa.table({"id": [f"k{n}"], "n": [n if n != 7 else 300]}) for n in range(10)]
    with pytest.raises(Invalid, match=r"row 7 \(id='k7'\) has 300"):
        table.upsert(iter(pieces))


def test_a_column_that_some_pieces_lack_is_null_there():
    table, expected = created(options=SMALL), created()
    table.upsert(iter([data(1).drop_columns(["note"]), data(2)]))
    expected.upsert([data(1).drop_columns(["note"]), data(2)])
    assert seen(table) == seen(expected)


def failing(after):
    for number, batch in enumerate(data(5, 40, 1000).to_batches(max_chunksize=4)):
        if number == after:
            raise OSError("the source is gone")
        yield batch


@pytest.mark.parametrize("as_reader", [False, True])
@pytest.mark.parametrize("after", [1, 9])
def test_a_source_that_fails_in_the_middle_leaves_nothing(tmp_path, after, as_reader):
    folder, aside = tmp_path / "t", tmp_path / "aside"
    aside.mkdir()
    options = SMALL | {"mdt.write.spill.dir": str(aside)}
    table = mdt.create(str(folder), SCHEMA, key=["id"], options=options)
    table.upsert(data(1))
    before = sorted(str(path) for path in folder.rglob("*"))
    opened = len(os.listdir("/proc/self/fd"))
    given = failing(after)
    source = pa.RecordBatchReader.from_batches(SCHEMA, given) if as_reader else given
    with pytest.raises(OSError, match="the source is gone") as told:
        table.upsert(source)
    assert len(os.listdir("/proc/self/fd")) <= opened and told.value.__traceback__, (
        "who keeps the error keeps no file"
    )
    with pytest.raises(OSError, match="the source is gone") as told:
        table.upsert(failing(after), evolve=True)
    assert len(os.listdir("/proc/self/fd")) <= opened
    assert sorted(str(path) for path in folder.rglob("*")) == before
    assert not list(aside.iterdir())
    assert table.upsert(failing(1000)).inserted


def test_a_disk_that_is_full_commits_nothing(monkeypatch):
    table = created(options=SMALL)
    written, write = [], os.pwrite

    def full(*of):
        written.append(of)
        if len(written) == 50:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*of)

    monkeypatch.setattr(os, "pwrite", full)
    why = r"rows cannot be written to a scratch file in .*No space left(.|\n)*mdt.write.spill.dir"
    with pytest.raises(Unavailable, match=why):
        table.upsert(data(5).to_reader(max_chunksize=4))
    assert table.scan().count() == 0
    assert_clean(table.storage)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    table = created(options=SMALL | {"mdt.write.spill.dir": str(tmp_path / "no")})
    with pytest.raises(
        Invalid, match=r"a scratch file cannot be created(.|\n)*mdt.write.spill.dir"
    ):
        table.upsert(data(5).to_reader(max_chunksize=4))


def test_progress_tells_files_and_what_it_raises_ends_the_write():
    table = created(partition_by=["city"], options=SMALL)
    told = []
    table.upsert(data(5).to_reader(max_chunksize=4), progress=lambda *of: told.append(of))
    assert told and told[-1][0] == told[-1][1] == len(table.files())
    assert told == sorted(told)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.upsert(data(6).to_reader(max_chunksize=4), progress=stop)
    table.abort()
    assert_clean(table.storage)


def test_another_writer_in_between_sends_spilled_rows_through_once_more():
    table = created(SpilledTable, table_type=COW)
    other = mdt.open(table.storage)
    other.upsert(data(1))
    with meanwhile(RowOperation, lambda: other.upsert(data(3))):
        assert table.upsert(data(2)).attempts == 2
    expected = created(table_type=COW)
    for seed in (1, 3, 2):
        expected.upsert(data(seed))
    assert seen(table) == seen(expected)
    assert_clean(table.storage)


def test_a_source_that_cannot_be_merged_part_by_part_is_brought_into_memory():
    table = created(options=SMALL)
    given = data(1, 20, 1000)
    table.upsert(given)
    merge = table.merge(given.to_reader(max_chunksize=4), on="source.fare = target.fare")
    assert merge._runner is None
    assert merge.when_matched().update({"note": "'found'"}).execute().updated == 20
    merge = table.merge(given.to_reader(max_chunksize=4)).when_matched().delete()
    assert merge._runner is not None
    new = {"id": "'new'", "city": "source.city", "ts": "source.ts"}
    merge = merge.when_not_matched().insert(new)
    assert merge._runner is None
    assert merge.execute().deleted == 20


def test_sources_of_several_columns_or_types_are_merged_in_memory():
    table = created(options=SMALL)
    given = data(1, 20, 1000)
    table.upsert(given)
    encoded = given.set_column(1, "city", given["city"].dictionary_encode())
    for source in (
        encoded.to_reader(max_chunksize=4),
        iter([given.slice(0, 9), given.slice(9).append_column("more", [[1] * 11])]),
    ):
        merge = table.merge(source)
        assert merge._runner is None
        assert merge.when_matched().update({"note": "source.note"}).execute().updated == 20


# The pieces that it is made of


def test_a_scratch_file_has_no_name_and_gives_back_what_it_got(tmp_path):
    scratch = Scratch(str(tmp_path))
    at = [scratch.append(bytes([n]) * n) for n in range(5)]
    assert [scratch.read(start, n).to_pybytes() for n, start in enumerate(at)] == [
        bytes([n]) * n for n in range(5)
    ]
    assert not list(tmp_path.iterdir())
    scratch.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        scratch.read(0, 1)
    assert Scratch()._where == os.path.abspath(tempfile.gettempdir())


def test_parts_keep_the_order_of_rows_and_equal_keys_meet():
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
    where = {}
    for part in together.parts:
        for row in pa.Table.from_batches(together.batches([part])).to_pylist():
            place = part, row["__mdt_n"]
            assert where.setdefault(row["__mdt_kind"], (part, -1)) <= place
            where[row["__mdt_kind"]] = place
    assert len(where) == 7
    counts = engine.count_tagged(together).sort_by("__mdt_kind")
    assert counts["rows"].to_pylist() == [72] * 3 + [71] * 4
    assert counts["total"].to_pylist() == [
        sum(n for n in range(500) if n % 7 == k) for k in range(7)
    ]
    assert engine.select(together, 3, ["__mdt_n"], rows_max=5).num_rows == 5
    assert engine.map_shares(lambda share, attempt: share * 2, [1, 2, 3]) == [2, 4, 6]


def test_no_more_rows_are_held_at_a_time_than_memory_is_for():
    engine = SpillingEngine(spilled.SHARE * 1_000_000, "", 2)
    table = pa.table({"k": np.arange(200_000)})
    raw = engine.empty(table.schema, ["k"])
    spiller = engine.spiller(raw, lambda rows: part_by(("k",), rows))
    waiting = []
    for piece in in_pieces(table, 1000):
        spiller.add(piece)
        waiting.append(spiller._memory)
    spiller.flush()
    assert max(waiting) <= 1_000_000
    runs = raw.runs(500_000)
    assert max(memory for _, memory in runs) <= 500_000
    assert sorted(part for parts, _ in runs for part in parts) == list(range(spilled.PARTS))
    held, most = [0], [0]

    def hold(batches, attempt):
        mine = sum(spilled.weight(batch.nbytes, len(batch)) for batch in batches)
        held[0] += mine
        most[0] = max(most[0], held[0])
        held[0] -= mine
        return b"1"

    assert len(engine.collect_results(raw, hold)) == len(runs)
    assert most[0] <= 1_000_000


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is measured as Linux tells it"
)
def test_writes_take_little_more_memory_than_they_may(tmp_path):
    """Of a generator, with all that is made of its rows; a process of its own, so that nobody
    else's memory is counted.
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
    told = subprocess.run(command, capture_output=True, check=True, env=environment).stdout
    peaks = json.loads(told)
    kinds = ("an upsert", "a delete", "a delete by condition", "a compaction")
    assert set(peaks) == {"load", "upsert", "delete", *(f"rewrite of {kind}" for kind in kinds)}
    assert max(peaks[kind] for kind in ("load", "upsert", "delete")) <= limit + MEMORY_BESIDE, peaks
    assert max(peaks.values()) <= limit + MEMORY_BESIDE_REWRITES, peaks


def test_a_file_that_is_written_anew_counts_for_the_memory_of_its_task(
    monkeypatch,
):
    """Its rows come from the table, and not from the parts of the input."""
    engine = SpillingEngine(spilled.SHARE * 1_000_000, "", 2)
    rows = engine.distribute(pa.table({"k": [1, 2, 3]}))
    assert len(rows.runs(10_000)) == 1
    beside = replace(rows, beside={0: 9_900, 1: 9_900})
    assert [parts for parts, _ in beside.runs(10_000)] == [[0], [1]]
    table = created(SpilledTable, table_type=COW)
    table.upsert(data(1))
    (before,) = table.files().to_pylist()
    deals, dealt = [], SpillingEngine.shuffle_to_buckets
    monkeypatch.setattr(
        SpillingEngine, "shuffle_to_buckets", lambda *given: deals.append(given[2]) or dealt(*given)
    )
    table.upsert(data(1))
    assert list(deals[0].carried.values()) == [(before["size"], before["rows"])]
