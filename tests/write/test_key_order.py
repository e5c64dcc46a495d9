"""Rows are sorted, and key ranges compared, in the order of the key columns' types. Hudi's bounds
in footers are text.
"""

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trees
from hypothesis import given, settings
from hypothesis import strategies as st

import mdt
from mdt.hudi.record_keys import record_keys, sort_keys, sort_permutation
from mdt.metadata.keys.locate import propose
from mdt.stores.storage import MemoryStorage
from mdt.write import row_groups

KEY_TYPES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    pa.string(): st.text(st.sampled_from("\0\x01aé\U0010ffff"), min_size=1, max_size=3),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    pa.timestamp("ms", "UTC"): st.integers(-5, 5).map(lambda n: n * 10**11),
}
SMALL = {"mdt.row.group.rows": 50, "mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0}


@st.composite
def keyed_rows(draw):
    """Draw key columns of one to three types, and their rows as Python values with the same order."""
    types = draw(st.lists(st.sampled_from(list(KEY_TYPES)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(KEY_TYPES[type] for type in types)), min_size=1, max_size=30))
    columns = [pa.array([row[i] for row in rows], type) for i, type in enumerate(types)]
    comparable = [tuple(v.encode() if isinstance(v, str) else v for v in row) for row in rows]
    return pa.table(columns, [f"k{i}" for i in range(len(types))]), comparable


@settings(deadline=None)
@given(keyed_rows())
def test_sort_keys_have_the_order_of_the_key_columns(
    example,
):
    table, rows = example
    keys = sort_keys(table, table.column_names).cast(pa.binary()).to_pylist()
    assert sorted(range(len(rows)), key=rows.__getitem__) == sorted(
        range(len(rows)), key=keys.__getitem__
    )
    assert len(set(keys)) == len(set(rows))


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True),
    st.sampled_from((pa.int64(), pa.string())),
)
def test_sort_permutation_sorts_and_is_none_for_sorted_keys(numbers, type):
    table = pa.table({"id": pa.array(numbers, pa.int64()).cast(type)})
    keys = sort_keys(table, ["id"])
    order = sort_permutation(keys)
    values = table["id"].to_pylist()
    assert sorted(values) == (values if order is None else [values[i] for i in order])
    assert (order is None) == (sorted(values) == values)


@given(
    st.lists(
        st.tuples(st.text("ab\0é", min_size=5, max_size=5), st.text("xy", min_size=3, max_size=3)),
        min_size=1,
    ),
    st.integers(0, 3),
    st.sampled_from(("", "p", "prefix ")),
)
def test_texts_of_equal_length_are_sorted_by_bytes_wherever_they_differ(parts, cut, prefix):
    texts = [f"{prefix}{first}{prefix}{last}" for first, last in parts]
    keys = pa.array(texts).slice(cut)
    order, values = sort_permutation(keys), [text.encode() for text in keys.to_pylist()]
    expected = sorted(range(len(values)), key=values.__getitem__)
    assert (list(range(len(values))) if order is None else order.tolist()) == expected


def _rows(ids, more=None):
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            **(more or {}),
            "x": pa.array([1.0] * len(ids), pa.float64()),
        }
    )


def _row_groups_read(table, where):
    """Return the number of row groups read, and their total number."""
    plan = table.scan(where).explain()
    return plan.row_groups_read, plan.row_groups_total


@pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
@pytest.mark.parametrize("key_index", ["bloom", "record"])
def test_a_range_of_integer_keys_reads_only_the_row_groups_that_hold_it(
    table_type, key_index, tmp_path
):
    ids = np.random.default_rng(7).permutation(2_000).tolist()
    table = trees.create(
        tmp_path / "t",
        _rows([]).schema,
        table_type=table_type,
        key_index=key_index,
        options=SMALL | {"mdt.small.file.bytes": 2048},
    )
    table.bulk_insert(_rows(ids))
    assert _row_groups_read(table, "id between 90 and 110")[0] <= 3
    table.upsert(_rows(list(range(80, 1_000, 7)), {}))
    table.upsert(_rows(list(range(2_000, 2_100)), {}))
    assert table.get([110, 9, -1])["id"].to_pylist() == [110, 9, None]
    table.compact()
    assert table.get([1_999, 2_050, 3])["id"].to_pylist() == [1_999, 2_050, 3]
    read, total = _row_groups_read(table, "id between 90 and 110")
    assert read <= 3 and total > 30, "rows keep their order when files are rewritten"
    assert sorted(table.scan("id between 90 and 110").to_arrow()["id"].to_pylist()) == list(
        range(90, 111)
    )
    trees.assert_readers_agree(table, tmp_path / "t")


def test_rows_with_composite_keys_are_sorted_by_the_key_columns_in_turn():
    n = 1_000
    order = np.random.default_rng(3).permutation(n)
    day = [date.fromordinal(730_000 + int(i) // 100) for i in order]
    rows = _rows((order % 100).tolist(), {"day": pa.array(day)})
    table = mdt.create(MemoryStorage(), rows.schema, ["day", "id"], options=SMALL)
    table.bulk_insert(rows)
    assert _row_groups_read(table, f"day = '{date.fromordinal(730_003)}'")[0] <= 3
    keys = [
        row
        for batch in table.scan(columns=["day", "id"]).to_batches()
        for row in map(tuple, batch.to_pylist())
    ]
    assert keys == sorted(keys)


def test_the_key_index_compares_ranges_of_numbers_and_not_of_text():
    table = mdt.create(
        MemoryStorage(), _rows([]).schema, ["id"], options={**SMALL, "mdt.bloom.fpp": 0.5}
    )
    table.bulk_insert(_rows(list(range(10_000))))
    key_rows = pa.table({"id": pa.array([5])})
    snapshot = table.snapshot()
    keys = record_keys(key_rows, ["id"])
    typed = sort_keys(key_rows, ["id"])
    hashes = snapshot.definition.key_hash.hash(keys)
    index = table.metadata.key_index(snapshot)
    assert index.name == "bloom/1"
    candidates = propose(table.metadata, snapshot, typed, hashes)
    assert len(snapshot) > 5 and len(candidates.key) == 1 and not len(candidates.whole), (
        "one range of many holds the key, whatever the filters return"
    )


def test_key_bounds_in_the_footer_are_in_the_order_of_text():
    table = mdt.create(MemoryStorage(), _rows([]).schema, ["id"])
    table.bulk_insert(_rows([9, 10, 100, -5]))
    footer = pq.read_metadata(
        pa.BufferReader(table.storage.read(table.files()["name"][0].as_py()))
    ).metadata
    assert (footer[b"hoodie_min_record_key"], footer[b"hoodie_max_record_key"]) == (b"-5", b"9")


def test_a_rewritten_file_keeps_its_order_and_appends_new_rows_to_unsorted_rows(monkeypatch):
    def ids_after_upsert(first):
        table = mdt.create(MemoryStorage(), _rows([]).schema, ["id"], table_type="COPY_ON_WRITE")
        table.bulk_insert(_rows(first))
        table.upsert(_rows([2, 10, 0]))
        return table.scan(columns=["id"]).to_arrow()["id"].to_pylist()

    assert ids_after_upsert([9, 2, 1]) == [0, 1, 2, 9, 10]
    monkeypatch.setattr(row_groups, "in_key_order", lambda keys, rows: rows)
    assert ids_after_upsert([9, 2, 1]) == [9, 1, 2, 10, 0], (
        "unsorted rows keep their order, new rows are appended"
    )
