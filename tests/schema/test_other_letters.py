"""Names of columns in other letters than the table's: taken where they can mean one column only,
and refused with the candidates where not.
"""

import pyarrow as pa
import pytest
from refusals import refused
from texts import columns

import mdt

SCHEMA = columns("Id int64, City string, Fare double").append(
    pa.field("at", pa.struct({"Lat": pa.int32()}))
)
ROWS = [
    {"Id": 1, "City": "Oslo", "Fare": 4.5, "at": {"Lat": 1}},
    {"Id": 2, "City": "Rome", "Fare": 7.0, "at": None},
]


@pytest.fixture
def table(tmp_path):
    found = mdt.create(
        tmp_path / "t",
        SCHEMA,
        key=["ID"],
        partition_by=["city"],
        ordering="FARE",
        indexes=["bitmap(CITY)"],
    )
    found.upsert(pa.Table.from_pylist(ROWS, SCHEMA))
    return found


def test_a_table_is_made_of_columns_in_other_letters(table):
    made = table.definition
    assert (made.key, made.partition_by, made.ordering) == (("Id",), ("City",), ("Fare",))
    assert made.indexes[0].endswith("(City)")


def lower(rows):
    found = pa.Table.from_pylist(rows, SCHEMA)
    return found.rename_columns([name.lower() for name in found.column_names])


def lower_dicts(rows):
    return [{name.lower(): value for name, value in row.items()} for row in rows]


FORMS = {
    "table": lower,
    "reader": lambda rows: lower(rows).to_reader(),
    "generator": lambda rows: iter(lower(rows).to_batches()),
    "dicts": lower_dicts,
    "generator of dicts": lambda rows: iter(lower_dicts(rows)),
    "columns": lambda rows: lower(rows).to_pydict(),
}


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("evolve", [False, True])
def test_rows_are_written_by_columns_in_other_letters(table, form, evolve):
    table.upsert(FORMS[form]([{**ROWS[0], "Fare": 9.0}, {**ROWS[1], "Id": 3}]), evolve=evolve)
    assert table.schema.names == SCHEMA.names
    assert table.scan(order_by="id").to_arrow().column("Fare").to_pylist() == [9.0, 7.0, 7.0]


def test_queries_name_columns_in_other_letters(table):
    where, order = "CITY = 'Oslo' and AT.LAT = 1", ["fare", ("ID", "desc")]
    found = table.scan(where, columns=["FARE", "id"], order_by=order).to_arrow()
    assert found.to_pylist() == [{"Fare": 4.5, "Id": 1}]
    assert table.get([{"ID": 1, "CITY": "Oslo"}], columns=["fare"]).to_pylist() == [{"Fare": 4.5}]


def test_changes_name_columns_in_other_letters(table):
    table.update_where({"FARE": "fare + 1"}, "id = 1")
    table.update_where(values={"fare": 0.5}, where="ID = 2")
    merge = table.merge(lower([{**ROWS[0], "Fare": 8.0}]), on=["ID", "CITY"])
    merge.when_matched().update({"FARE": "source.FARE"}).execute()
    assert table.scan(order_by="Id").to_arrow().column("Fare").to_pylist() == [8.0, 0.5]
    table.delete(pa.table({"ID": [1], "CITY": ["Oslo"]}))
    assert table.scan().count() == 1


def test_a_columns_own_name_goes_before_others(table):
    rows = pa.Table.from_pylist([ROWS[0]], SCHEMA).append_column("id", pa.array([7]))
    refused("column 'id' is not in the table", table.upsert, rows)
    table.delete(rows.select(["id", "City", "Id"]))
    assert table.scan().to_arrow().column("Id").to_pylist() == [2]


def test_names_that_may_be_several_columns_are_refused_with_the_candidates(
    table,
):
    rows = pa.table({"ID": [1], "id": [2], "City": ["Oslo"], "Fare": [1.0], "at": [{"Lat": 1}]})
    refused("the column 'Id' matches several columns of the data: ID, id", table.upsert, rows)
    twice = {"fare": "1.0", "FARE": "2.0"}
    refused("names the column 'Fare' twice", table.update_where, twice, "id = 1")
    assert table.scan().count() == 2


def test_unknown_names_are_refused_with_the_nearest(table):
    said = "there is no column 'FAIR' … hint: did you mean Fare?"
    refused(said, table.scan, columns=["FAIR"])
    refused(said, table.scan, order_by="FAIR")
    refused(said, table.scan, "FAIR = 1")
    refused(said, table.update_where, {"FAIR": "1.0"}, "id = 1")
