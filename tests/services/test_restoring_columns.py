"""Restoring a state with other columns brings its columns back, even if files were rewritten without
them in the meantime.
"""

from itertools import product

import pyarrow as pa
import pytest
from reader import agreed, bag
from trees import TABLE_TYPES, create

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("note", pa.string()),
        pa.field("must", pa.int32(), nullable=False),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ]
)
ALTERATIONS = {
    "added": {"add": {"more": "string"}},
    "added with a default": {"add": {"more": "int64"}, "defaults": {"more": 7}},
    "dropped": {"drop": ["note", "s.b"]},
    "dropped, another under its name": {"drop": ["note"], "add": {"note": "int64"}},
    "renamed": {"rename": {"note": "remark", "s.a": "z"}},
    "widened": {"widen": {"n": "int64", "s.a": "int64"}},
    "may be null": {"nullable": ["must"]},
    "other order": {"reorder": ["note", "id"]},
}
WIDE = pa.schema(
    [pa.field("n", pa.int64()) if f.name == "n" else f for f in SCHEMA.remove(6)]
    + [pa.field("s", pa.struct([("a", pa.int64()), ("b", pa.string())]))]
)
NULLABLE = pa.schema([f.with_nullable(True) for f in SCHEMA])
COLUMNS = {"widened": WIDE, "may be null": NULLABLE}
"""Columns after a restore, for alterations that are not undone completely."""


def rows(ids, at):
    return [
        {"id": id, "city": "xy"[n % 2], "ts": at, "n": at, "note": f"{at} {id}", "must": n}
        | {"s": {"a": n, "b": id} if n % 3 else None}
        for n, id in enumerate(ids)
    ]


def filled_table(path, **more):
    table = create(
        path,
        SCHEMA,
        partition_by=["city"],
        indexes=["bitmap(note)", "bloom(n)"],
        options={"mdt.services.auto": False},
        **more,
    )
    table.upsert(rows("abcdefgh", 1))
    table.upsert(rows("abc", 2))
    table.delete({"id": ["g"], "city": ["x"]})
    return table


def changed_row(table, id):
    """Return a current row of the table with a new ordering value."""
    row = table.scan([("id", "=", id)]).to_arrow().to_pylist()[0]
    return row | {"ts": 9}


def states(table):
    return [bag(table.scan(as_of=seq).to_arrow()) for seq in range(table.snapshot().seq + 1)]


def kinds():
    """Return every alteration with each kind of table. Two of the four kinds run daily."""
    params = []
    for name, (kind, ordering) in product(ALTERATIONS, product(TABLE_TYPES, ("ts", None))):
        is_daily = (kind == "MERGE_ON_READ") == (ordering == "ts")
        params.append(
            pytest.param(name, kind, ordering, marks=() if is_daily else pytest.mark.nightly)
        )
    return params


@pytest.mark.parametrize("name, table_type, ordering", kinds())
def test_a_restore_brings_back_the_columns_and_rows_of_a_state(
    name, table_type, ordering, tmp_path
):
    table = filled_table(tmp_path / "t", table_type=table_type, ordering=ordering)
    old = table.snapshot().seq
    table.alter(**ALTERATIONS[name], beyond_hudi=True)
    table.upsert([changed_row(table, "a"), changed_row(table, "d") | {"id": "new"}])
    table.compact()
    table.delete({"id": ["e"], "city": ["x"]})
    states_before, altered = states(table), table.schema
    expected = table.scan(as_of=old).to_arrow().to_pylist()
    result = table.restore(old)
    assert table.schema.equals(COLUMNS.get(name, SCHEMA)), (
        "except columns that stay wide or nullable"
    )
    agreed(table, expected=pa.Table.from_pylist(expected, table.schema))
    change_rows = table.changes(len(states_before) - 1).to_arrow()
    if name.startswith("dropped"):
        assert change_rows["_change"].to_pylist().count("update_after") == 6, (
            "followers of changes get the values of restored columns"
        )
    assert result.seq == len(states_before) and states(table)[:-1] == states_before, (
        "a restore is one commit and does not change earlier states"
    )
    assert table.check().ok
    for row in expected:
        assert table.get({"id": row["id"], "city": row["city"]}) == row
        assert table.scan(
            [("note", "=", row["note"]), ("n", "=", row["n"])]
        ).to_arrow().to_pylist() == [row]
    upserted_seq = table.upsert(rows("ax", 10)).seq
    assert (
        table.changes(upserted_seq - 1, upserted_seq)
        .to_arrow()["_change"]
        .to_pylist()
        .count("insert")
        == 1
    )
    table.compact()
    table.metadata.compact()
    assert table.check().ok and table.scan("n = 10").count() == 2
    table.restore(len(states_before) - 1)
    newest = bag(table.scan().to_arrow())
    assert table.schema.names == altered.names and newest == states_before[-1], (
        "a restore can be undone like other commits"
    )
    assert table.check().ok


def _statistics(table):
    """Write a checkpoint. Return the columns with statistics in it."""
    table.metadata.compact()
    return sorted(table.snapshot().checkpoint.names("stats"))


@pytest.mark.parametrize("tagged", [False, True])
def test_statistics_of_a_dropped_column_are_kept_while_it_can_be_restored(tagged, tmp_path):
    """A checkpoint made from an earlier checkpoint equals one made from all records: check compares
    them.
    """
    table = filled_table(tmp_path / "t", ordering=None)
    table.upsert([{**row, "id": f"{row['id']}2"} for row in rows("abc", 1)])
    old = table.snapshot().seq
    if tagged:
        table.tag("before")
    table.alter(drop=["note"])
    assert "note" in _statistics(table)
    table.restore(old)
    assert table.check().ok, "its statistics are unchanged"
    table.alter(drop=["note"])
    for at in range(3):
        table.upsert([changed_row(table, "a") | {"n": at}])
    table.clean(retain_commits=1)
    assert ("note" in _statistics(table)) == tagged
    if tagged:
        table.restore("before")
        assert table.check().ok
        table.alter(drop=["note"])
        table.upsert([changed_row(table, "a")])
        table.untag("before")
        table.clean(retain_commits=1)
    assert "note" not in _statistics(table) and table.check().ok


def test_a_restore_keeps_indexes_of_renamed_columns_but_not_of_dropped_columns(
    tmp_path,
):
    table = filled_table(tmp_path / "t")
    old = table.snapshot().seq
    table.alter(drop=["note"])
    table.alter(rename={"n": "number"}, beyond_hudi=True)
    table.restore(old)
    assert [text.partition("(")[2] for text in table.definition.indexes] == ["n)"]
    table.create_index("bitmap(note)")
    table.build_indexes()
    assert table.scan([("note", "=", "2 a")]).count() == 1
    assert table.check().ok
