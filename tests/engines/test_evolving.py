"""Upserts with schema evolution from rows in pieces. The result equals that of one table, whether
or not the rows fit into memory.
"""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from spilled import in_pieces, memory_watched
from texts import columns
from worlds import COW, assert_clean

import mdt
from mdt.errors import Invalid
from mdt.schema.evolve import add_missing_columns
from mdt.stores.storage import MemoryStorage

SMALL = {"mdt.write.memory.max": 1}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("items", pa.list_(pa.struct([("x", pa.int64())]))),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("note", pa.string()),
    ]
)


def data(seed, size=30):
    """Random rows with additional columns, wider types, and fewer struct fields than the table."""
    draw = np.random.default_rng(seed)
    kinds = pa.array(draw.choice(["u", "v", None], size), pa.string()).dictionary_encode()
    return pa.table(
        {
            "kind": kinds,
            "id": [f"k{n}" for n in draw.integers(0, 40, size)],
            "n": draw.integers(0, 2**40, size),
            "s": [{"b": f"b{n}", "new": [n]} if n % 3 else None for n in range(size)],
            "items": [[{"y": n}] * (n % 3) if n % 4 else None for n in range(size)],
            "fresh": kinds,
            "nothing": pa.nulls(size),
        }
    )


def visible_rows(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=str)


def filled(options):
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], table_type=COW, options=options)
    old = {"kind": "u", "note": "old"}
    table.upsert(
        [
            {"id": f"k{n}", "n": n, "s": {"a": n, "b": None}, "items": [{"x": n}], **old}
            for n in range(20)
        ]
    )
    return table


def grown(table):
    """Yield pieces. Later pieces have columns that the first ones lack."""
    for number, piece in enumerate(in_pieces(table)):
        yield (
            piece
            if number > 4
            else piece.drop_columns(["fresh", "items"] if number else ["n", "nothing", "s"])
        )


FORMS = {
    "reader": lambda table, _: table.to_reader(max_chunksize=4),
    "batches": lambda table, _: (batch for batch in table.to_batches(max_chunksize=4)),
    "tables": lambda table, _: in_pieces(table),
    "grown": lambda table, _: grown(table),
    "dataset": lambda table, folder: ds.dataset(table.drop_columns(["nothing"])),
    "scanner": (
        lambda table, folder: ds.dataset(table.drop_columns(["nothing"])).scanner(batch_size=4)
    ),
    "dicts": lambda table, _: iter(table.to_pylist()),
    "one": lambda table, _: iter([table]),
    "none": lambda table, _: iter([table.slice(0, 0)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_upsert_in_pieces_evolves_the_schema_as_an_upsert_of_one_table(tmp_path, form):
    source = data(1, 0 if form == "none" else 30)
    one_table = (
        pa.concat_tables(grown(source), promote_options="default") if form == "grown" else source
    )
    expected = filled({})
    expected_result = expected.upsert(
        one_table.to_pylist() if form == "dicts" else one_table, evolve=True
    )
    for options in ({}, SMALL):
        table = filled(options)
        result = table.upsert(FORMS[form](source, tmp_path), evolve=True)
        for name in ("inserted", "updated", "late"):
            assert getattr(result, name) == getattr(expected_result, name)
        assert table.schema.equals(expected.schema) and visible_rows(table) == visible_rows(
            expected
        )
        assert_clean(table.storage)


def test_mergers_work_with_pieces_that_evolve_the_schema(tmp_path):
    tables = [filled({}), filled(SMALL)]
    for table, source in zip(tables, (data(2), data(2).to_reader(max_chunksize=4)), strict=True):
        table.upsert(source, evolve=True, mergers={"n": "sum"})
    assert visible_rows(tables[0]) == visible_rows(tables[1])


def test_pieces_that_do_not_fit_each_other_or_the_table_are_refused():
    for options in ({}, SMALL):
        table = filled(options)
        before = visible_rows(table)
        with pytest.raises(Invalid, match="the pieces of the data have different columns"):
            table.upsert(
                iter([pa.table({"id": ["a"], "z": [n]}) for n in (1, 2, "text")]), evolve=True
            )
        assert table.schema.names == SCHEMA.names
        with pytest.raises(Invalid, match=r"column 'note' is int64.*: the types do not fit"):
            table.upsert(pa.table({"id": ["a"], "note": [1]}).to_reader(), evolve=True)
        with pytest.raises(Invalid, match="repeated column names"):
            table.upsert(pa.table([["a"], [1], [2]], ["id", "z", "z"]).to_reader(), evolve=True)
        assert visible_rows(table) == before
        assert_clean(table.storage)


@pytest.mark.parametrize("as_reader", [False, True])
def test_an_upsert_with_evolution_keeps_no_more_rows_in_memory_than_its_limit(as_reader):
    """35 MB of rows with a limit of 16 MB, both before and after the table is altered."""
    size, text = 1 << 18, pa.array(["x" * 120] * (1 << 12))
    table = mdt.create(
        MemoryStorage(),
        columns("id int64, v int32, text string"),
        key=["id"],
        options={"mdt.write.memory.max": 16 << 20, "mdt.writer.threads": 1, "mdt.durable": False},
    )
    schema = columns("id int64, v int64, text string")
    with memory_watched() as measure:

        def batches():
            for start in range(0, size, len(text)):
                measure()
                ids = np.arange(start, start + len(text))
                yield pa.record_batch([ids, np.zeros(len(text), np.int64), text], schema=schema)

        source = pa.RecordBatchReader.from_batches(schema, batches()) if as_reader else batches()
        assert table.upsert(source, evolve=True).inserted == size
        assert measure() < 8 << 20
    assert table.schema.field("v").type == pa.int64()


def test_a_struct_column_without_chunks_gets_the_missing_fields_of_the_table():
    empty = pa.table({"s": pa.chunked_array([], pa.struct([("b", pa.string())]))})
    completed = add_missing_columns(empty, filled({}).definition)
    assert {field.name for field in completed.schema.field("s").type} == {"a", "b"}
