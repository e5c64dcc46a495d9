"""Ambiguous requests are carried out as meant or refused: conditions passed as keys, rows without
partitions, source columns that a merge would ignore.
"""

import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.errors import Invalid

SCHEMA = columns("id string, city string, fare float64")
ROWS = pa.table(
    {"id": ["a", "fare > 4"], "city": ["Oslo", "Rome"], "fare": [9.0, 1.0]}, schema=SCHEMA
)


@pytest.fixture
def table(tmp_path):
    new_table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    new_table.upsert(ROWS)
    return new_table


@pytest.mark.parametrize(
    "keys", ["fare > 5", ["fare > 5"], "city = 'Oslo' and fare > 1", "id is null"]
)
def test_a_condition_passed_as_a_key_raises_an_error_that_names_delete_where(table, keys):
    with pytest.raises(Invalid, match=r"reads as a condition[\s\S]*t.delete_where"):
        table.delete(keys)
    with table.writer() as writer, pytest.raises(Invalid, match="t.delete_where"):
        writer.delete(keys)
    assert table.scan().count() == 2


def test_an_existing_key_that_reads_like_a_condition_is_deleted(table):
    assert table.delete("fare > 4").deleted == 1
    assert table.scan().to_arrow()["id"].to_pylist() == ["a"]


@pytest.mark.parametrize("key", ["fare", "a b", "1", "2024-01-31", "true", "x > y"])
def test_an_absent_key_that_is_not_a_condition_counts_as_missing(table, key):
    assert table.delete(key).missing == 1


def test_a_condition_is_refused_by_tables_with_numeric_keys_or_partitions(
    tmp_path,
):
    numbers = mdt.create(tmp_path / "n", columns("id int64, fare float64"), ["id"])
    partitioned = mdt.create(tmp_path / "p", SCHEMA, ["id"], partition_by=["city"])
    for table in (numbers, partitioned):
        with pytest.raises(Invalid, match="t.delete_where"):
            table.delete("fare > 4")


def table_with_global_keys(tmp_path, **options):
    new_table = mdt.create(
        tmp_path / "t", SCHEMA, ["id"], partition_by=["city"], scope="table", **options
    )
    new_table.upsert({"id": ["a", "b"], "city": ["Oslo", None], "fare": [1.0, 2.0]})
    return new_table


def row(key, city, fare):
    return pa.table({"id": [key], "city": [city], "fare": [fare]}, schema=SCHEMA)


def test_a_row_with_a_null_partition_does_not_move_an_existing_key(
    tmp_path,
):
    table = table_with_global_keys(tmp_path)
    with pytest.raises(Invalid, match="'a' is in city=Oslo") as error:
        table.upsert(row("a", None, 3.0))
    assert "partial=True" in error.value.hint
    assert table.upsert({"id": ["a"], "fare": [4.0]}, partial=True).updated == 1
    assert table.get("a") == {"id": "a", "city": "Oslo", "fare": 4.0}


def test_rows_can_stay_in_enter_and_leave_the_null_partition(tmp_path):
    table = table_with_global_keys(tmp_path)
    assert table.upsert(pa.concat_tables([row("b", None, 5.0), row("c", None, 6.0)])).updated == 1
    assert table.upsert(row("b", "Rome", 7.0)).updated == 1
    table.merge({"id": ["a"]}).when_matched().update({"city": None}).execute()
    assert {row["id"]: row["city"] for row in table.scan().to_arrow().to_pylist()} == {
        "a": None,
        "b": "Rome",
        "c": None,
    }


def test_a_row_with_a_null_partition_stays_if_keys_keep_their_partition(
    tmp_path,
):
    table = table_with_global_keys(tmp_path, options={"mdt.update.partition.path": False})
    table.upsert(row("a", None, 3.0))
    assert table.get("a") == {"id": "a", "city": "Oslo", "fare": 3.0}


MORE = {"id": ["a"], "city": ["Oslo"], "fare": [5.0], "op": ["u"]}


def test_a_star_clause_refuses_unknown_source_columns_unless_they_are_ignored(
    table,
):
    for merge in (
        table.merge(MORE).when_matched().update("*"),
        table.merge(MORE).when_not_matched().insert(),
    ):
        with pytest.raises(
            Invalid, match=r"columns that the table lacks .* 'op'[\s\S]*ignore=\['op'\]"
        ):
            merge.execute()
    assert table.merge(MORE, ignore=["op"]).when_matched().update("*").execute().updated == 1
    assert table.merge(MORE, ignore="op").when_matched().update("*").execute().updated == 1
    with pytest.raises(Invalid, match="ignore: the source has no column 'opp'"):
        table.merge(MORE, ignore=["opp"])


def test_a_star_clause_accepts_unknown_source_columns_that_other_clauses_read(table):
    merges = [
        table.merge(MORE).when_matched("source.op = 'u'").update("*"),
        table.merge(MORE)
        .when_matched()
        .update("*")
        .when_not_matched("source.op = 'i'")
        .insert({"id": "source.id"}),
        table.merge(MORE, "source.id = target.id and source.op = 'u'").when_matched().update("*"),
        table.merge(MORE)
        .when_matched("target.id = 'z'")
        .update({"city": "source.op"})
        .when_matched()
        .update("*"),
        table.merge(MORE).when_matched().update({"fare": "source.fare"}),
    ]
    assert [merge.execute().updated for merge in merges] == [1, 1, 1, 1, 1]
