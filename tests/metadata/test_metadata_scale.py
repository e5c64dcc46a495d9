"""Metadata of many files: the pages that a plan reads, the cost of a commit, and agreement of
checkpoint, added records and log.
"""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import QUIET
from texts import columns
from trees import TABLE_TYPES

import mdt
from benchmarks import planning
from indexes import arrays
from mdt.errors import Corrupt
from mdt.metadata.files import paths
from mdt.metadata.snapshot import checkpoint
from mdt.metadata.snapshot.apply import apply, first
from mdt.metadata.snapshot.checkpoint import checkpoint_of, differing_columns
from mdt.metadata.snapshot.file_groups import Groups
from mdt.metadata.snapshot.persistent_map import Layered
from mdt.metadata.snapshot.stored_columns import StoredColumns
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, p string, n int64")


def _rows(keys, n):
    return pa.table(
        [[f"k{k:02}" for k in keys], [f"p{k % 3}" for k in keys], [n] * len(keys)], schema=SCHEMA
    )


def _table(records, **more):
    options = {
        "mdt.max.file.bytes": 4096,
        "mdt.row.group.rows": 2,
        "mdt.writer.threads": 1,
        "mdt.metadata.compact.records": records,
    }
    return mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        partition_by=["p"],
        options=options,
        indexes=["bitmap(n)"],
        **more,
    )


def _from_log(table):
    """Return the newest snapshot, built from the records of the log alone."""
    newest_seq = table.snapshot().seq
    record = table.metadata.record(0)
    assert record is not None
    snapshot = first(record, path=paths.commit(0))
    for seq in range(1, newest_seq + 1):
        record = table.metadata.record(seq)
        assert record is not None
        snapshot = apply(snapshot, record)
    return snapshot


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "delete", "compact", "metadata"]),
        st.sets(st.integers(0, 30), min_size=1, max_size=8),
    ),
    min_size=2,
    max_size=6,
)


@given(
    steps=STEPS,
    records=st.sampled_from([1, 3, 100]),
    index=st.sampled_from(["bloom", "record", "simple"]),
    kind=st.sampled_from(TABLE_TYPES),
)
@settings(max_examples=10, **QUIET)
def test_a_checkpoint_with_later_records_equals_the_snapshot_from_the_log(
    steps, records, index, kind
):
    table = _table(records, key_index=index, table_type=kind)
    for n, (step, keys) in enumerate(steps):
        if step == "upsert":
            table.upsert(_rows(sorted(keys), n))
        elif step == "delete":
            table.delete(_rows(sorted(keys), n))
        elif step == "compact":
            table.compact()
        else:
            table.metadata.compact()
        expected = checkpoint_of(_from_log(table))
        names = [name for name in expected.everything() if name != "key_parts"]
        for snapshot in (table.snapshot(), mdt.open(table.storage).snapshot()):
            snapshot.check()
            assert differing_columns(expected, checkpoint_of(snapshot), names) == []
            for spec in snapshot.definition.indexes:
                assert snapshot.covered(spec)[snapshot.rows > 0].all()
        count("states of tables, checkpoint and additions compared with the log")


@given(
    items=st.lists(st.dictionaries(st.integers(0, 20), st.integers(1, 9), max_size=6), max_size=30)
)
def test_a_layered_mapping_equals_a_dictionary(items):
    expected = {}
    mapping = Layered()
    for update in items:
        before, old_items = mapping, dict(expected)
        mapping, expected = mapping.with_items(update), {**expected, **update}
        assert dict(before.items()) == old_items, "the mapping before the update is unchanged"
        assert dict(mapping.items()) == expected and len(mapping) == len(expected)
        for key in range(21):
            assert (mapping.get(key), key in mapping) == (expected.get(key), key in expected)
    assert len(mapping._layers) <= 6


@given(values=st.lists(st.integers(-5, 5), max_size=40), cut=st.integers(0, 9))
def test_conversions_between_arrow_and_numpy_keep_values_and_nulls(values, cut):
    array = pa.array(values, pa.int16()).slice(cut)
    assert arrays.numbers(array).tolist() == array.to_pylist()
    assert arrays.numbers(pa.chunked_array([array, array])).tolist() == 2 * array.to_pylist()
    is_positive = [value > 0 for value in values]
    assert arrays.flags(pa.array(is_positive, pa.bool_()).slice(cut)).tolist() == is_positive[cut:]
    assert arrays.mask(np.array(is_positive, np.bool_)).to_pylist() == is_positive
    with_nulls = arrays.column(np.array(values, np.int64), np.array(is_positive, np.bool_))
    assert with_nulls.to_pylist() == [value if value > 0 else None for value in values]


# A table with metadata of many files that do not exist

FILES = 3_000


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "t"
    planning.make(str(path), FILES).metadata.compact()
    return path


def _stored(table):
    checkpoint = table.snapshot().checkpoint
    assert isinstance(checkpoint, StoredColumns) and checkpoint.rows >= FILES
    return checkpoint


def _read_whole(checkpoint):
    """Return the names of the columns that were read as a whole."""
    return {
        name
        for name, part in checkpoint._recent._entries_by_key
        if part == -1 and not name.startswith("bounds of")
    }


def test_a_plan_reads_only_the_pages_it_needs(many):
    table = mdt.open(many)
    plan = table.scan(f"at = {7 * planning.ROWS}").plan
    (segment,) = plan.segments
    assert plan.snapshot.files.value("name", segment.file).as_py().startswith("00000007-")
    checkpoint = _stored(table)
    # History for the check of Hudi's timeline; deletes and row counts, statistics, row groups of
    # one file, its name.
    assert checkpoint.misses <= 6
    assert _read_whole(checkpoint) <= {"history", "files/rows", "dead", "stats/at"}
    counts = table.metadata.cache_counts()["pages"]
    assert len(table.scan(f"at = {9 * planning.ROWS}").plan.segments) == 1
    assert table.metadata.cache_counts()["pages"][1] == counts[1], "all pages are in memory"


def test_warm_reads_the_pages_that_plans_need(many):
    table = mdt.open(many)
    table.metadata.warm(["at", "device"])
    before = _stored(table).misses
    assert len(table.scan("at = 5 and device = 5").plan.segments) <= 1
    assert _stored(table).misses <= before + 1, "one page of row_group_rows"


def test_a_commit_reads_only_the_columns_it_needs_and_later_ones_read_nothing(many):
    table = mdt.open(many)
    for n in (0, 5):  # inserts, then updates
        table.upsert(planning._rows(n, 10))
    checkpoint = _stored(table)
    read = checkpoint.misses
    for n in range(5):
        table.upsert(planning._rows(n, 10))
    assert checkpoint.misses == read, "later commits read no page of the checkpoint"
    assert not {
        "files/name",
        "files/file_id",
        "group_name",
        "files/row_group_rows",
        "stats/at",
    } & _read_whole(checkpoint)
    groups = table.snapshot().file_groups
    assert len(groups.changed.flat()) <= 6
    assert table.scan("id = 'real_00000003'").plan.segments


def _brute_force_small(snapshot, partition, bytes_max):
    size, groups = snapshot.files.numpy("size"), snapshot.file_groups
    partition_groups = [n for n in range(groups.count) if groups.partition(n) == partition]
    sizes = [
        (int(size[groups.members(n)].sum()), n) for n in partition_groups if len(groups.members(n))
    ]
    return sorted((s, n) for s, n in sizes if s < bytes_max)


@pytest.mark.parametrize("records", [2, 100])
def test_small_file_groups_are_listed_by_ascending_size(records):
    table = _table(records)
    for n in range(6):
        table.upsert(_rows([n, n + 10, n + 20], n))
        snapshot = table.snapshot()
        for bytes_max in (0, 2_000, 5_000, 1 << 30):
            for partition in ("p=p0", "p=p1", "p=nowhere"):
                listed = [
                    (s.bytes, s.group) for s in snapshot.file_groups.small(partition, bytes_max)
                ]
                assert listed == _brute_force_small(snapshot, partition, bytes_max)


def test_file_groups_are_found_by_name_in_checkpoint_and_added_records(many):
    groups = Groups.from_checkpoint(_stored(mdt.open(many)))
    names = [f"{n:08x}-0000-4000-8000-{n:012x}-0" for n in (5, 17, FILES - 1)]
    assert groups.number([*names, "nobody"]).tolist() == [5, 17, FILES - 1, -1]
    all_names = groups.all_names()
    assert groups.number(all_names).tolist() == list(range(FILES))
    assert groups.number([name + "x" for name in all_names]).tolist() == [-1] * FILES
    with pytest.raises(IndexError):
        groups.name(FILES)


def _names(snapshot):
    names = snapshot.files.values("name", snapshot.live_numbers)
    return dict(zip(names, snapshot.live_numbers.tolist(), strict=True))


def test_a_file_keeps_its_number_until_the_metadata_are_compacted_and_a_removed_file_has_no_rows():
    table = _table(10_000, table_type="COPY_ON_WRITE")
    table.upsert(_rows(list(range(20)), 0))
    table.metadata.compact()
    before = table.snapshot()
    for n in (3, 14, 3):
        table.upsert(_rows([n], n))
        table.delete(_rows([n + 1], n))
        snapshot = table.snapshot()
        snapshot.check()
        numbers, earlier_numbers = _names(snapshot), _names(before)
        assert all(
            numbers[name] == earlier_numbers[name]
            for name in numbers.keys() & earlier_numbers.keys()
        )
        assert snapshot.numbered > len(snapshot) == len(numbers) == int(snapshot.live.sum())
        covered = [snapshot.covered(spec) for spec in snapshot.definition.indexes]
        for removed in snapshot.removed.tolist():
            for column in (
                snapshot.live,
                snapshot.has_rows,
                snapshot.rows,
                snapshot.dead_rows,
                *covered,
            ):
                assert not column[removed]
            assert snapshot.segment(removed).name not in numbers
        assert {scan.file for scan in table.scan().plan.segments} <= set(numbers.values())
        before = snapshot
    table.metadata.compact()
    compacted = table.snapshot()
    assert compacted.seq == before.seq and compacted.numbered < before.numbered
    assert compacted.live_numbers.tolist() == list(range(len(before))), (
        "compaction renumbers the files"
    )


def test_a_compaction_of_the_metadata_changes_no_query_results():
    table = _table(10_000, table_type="COPY_ON_WRITE")
    table.upsert(_rows(list(range(20)), 0))
    for n in (3, 14, 5):
        table.upsert(_rows([n], n))
    wheres = [f"n = {n}" for n in (0, 3, 5, 14)] + ["n < 4 and id like '%1%'"]
    expected = [table.scan(where).to_arrow().sort_by("id") for where in wheres]
    seq = table.snapshot().seq
    table.metadata.compact()
    assert table.snapshot().seq == seq
    assert [table.scan(where).to_arrow().sort_by("id") for where in wheres] == expected


def _group_numbers(snapshot):
    names = snapshot.file_groups.all_names()
    return dict(zip(names, snapshot.file_groups.number(names).tolist(), strict=True))


def test_numbers_of_file_groups_are_those_of_the_requested_checkpoint():
    table = _table(100)
    for n in range(4):
        table.upsert(_rows([n, n + 10], n))
    old_snapshot = mdt.open(table.storage).snapshot()
    numbers = _group_numbers(old_snapshot)
    writer = mdt.open(table.storage)
    writer.metadata.compact()
    table.compact()
    later_writer = mdt.open(table.storage)
    later_writer.metadata.compact()
    for checkpoint_seq in (-1, old_snapshot.seq):
        snapshot = mdt.open(table.storage).metadata.at(old_snapshot.seq, checkpoint_seq)
        assert snapshot.checkpoint.seq == checkpoint_seq and snapshot.seq == old_snapshot.seq
        assert checkpoint_seq >= 0 or _group_numbers(snapshot) == numbers
        snapshot.check()
    expected = _group_numbers(
        mdt.open(table.storage).metadata.at(old_snapshot.seq, old_snapshot.seq)
    )
    for info in table.storage.list(paths.CHECKPOINTS_DIR):
        if info.path.endswith(".manifest"):
            table.storage.delete(info.path)
            reread = mdt.open(table.storage).metadata.at(old_snapshot.seq, old_snapshot.seq)
            assert _group_numbers(reread) == expected


def test_a_reader_moves_to_a_newer_checkpoint_of_another_process():
    table = _table(10_000)
    reader = mdt.open(table.storage)
    for n in range(40):
        table.upsert(_rows([n], n))
        if n == 33:
            mdt.open(table.storage).metadata.compact()
    assert reader.snapshot().checkpoint.seq == 34 and reader.snapshot().seq == 40
    assert reader.scan().count() == 40 and reader.check().ok


def test_the_metadata_are_compacted_after_enough_deleted_rows(monkeypatch):
    monkeypatch.setattr(checkpoint, "METADATA_COMPACT_DEAD_ROWS", 5)
    table = _table(1_000)
    table.upsert(_rows(list(range(100)), 0))
    checkpoint_seqs = []
    for keys in (range(4), range(4, 6), range(6, 16), range(16, 19), range(19, 24), range(24, 29)):
        table.delete(_rows(list(keys), 0).select(["id", "p"]))
        checkpoint_seqs.append(table.metadata.checkpoint_seq)
    assert checkpoint_seqs == [-1, 3, 4, 4, 6, 6], (
        "after at least 5 deletes, and a quarter of those in the checkpoint"
    )
    reopened = mdt.open(table.storage)
    assert reopened.snapshot().dead_since == 5 and reopened.scan().count() == 71


def test_a_damaged_checkpoint_is_rebuilt_from_the_log_and_without_the_log_is_corrupt(tmp_path):
    table = planning.make(str(tmp_path / "t"), 50)
    table.metadata.compact()
    (pages,) = (tmp_path / "t" / ".hoodie" / ".mdt" / "checkpoints").glob("*.pages-0")
    pages.write_bytes(bytes(len(pages.read_bytes())))
    assert len(mdt.open(tmp_path / "t").scan("at = 5").plan.segments) == 1, (
        "the log has the same files"
    )
    (tmp_path / "t" / ".hoodie" / ".mdt" / "log" / f"{1:020}").unlink()
    with pytest.raises(Corrupt):
        mdt.open(tmp_path / "t").scan("at = 5").explain()


LATER = """
    sqlglot fastavro obstore lmdb pandas pyspark rich pyarrow.parquet pyarrow.dataset
    mdt.commit.transaction mdt.commit.recovery mdt.create_table mdt.engines mdt.filters.where
    mdt.plan.planner mdt.scan mdt.services mdt.stores.object_store mdt.stores.page_cache
    mdt.write.normalize mdt.write.operations
"""
"""Modules that ``import mdt`` must not load; they are loaded on first use."""
LOADED_MAX = 130
"""Limit on the number of our modules that ``import mdt`` loads, twelve of them empty packages. Each
other one costs up to a millisecond.
"""


def _output_words(code):
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return process.stdout.split()


def test_import_mdt_loads_no_writer_service_sql_or_store():
    code = "import sys, mdt; print(*sys.modules)"
    loaded = _output_words(code)
    ours = [name for name in loaded if name.partition(".")[0] in ("mdt", "indexes")]
    assert len(ours) <= LOADED_MAX
    unwanted = tuple(f"{name}." for name in LATER.split())
    assert not [name for name in loaded if f"{name}.".startswith(unwanted)]


def test_a_local_storage_is_opened_without_the_package_of_object_stores(tmp_path):
    opened = f"from mdt.stores.storage import open_storage; open_storage({str(tmp_path)!r})"
    assert _output_words(f"import sys; {opened}; print('obstore' in sys.modules)") == ["False"]


def test_mdt_read_is_the_function_and_not_a_module():
    assert mdt.read.__module__ == "mdt.source" and callable(mdt.open)
