"""Column names in another case than the table's. They are accepted if they match a single column,
and refused with the candidates otherwise.
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
    new_table = mdt.create(
        tmp_path / "t",
        SCHEMA,
        key=["ID"],
        partition_by=["city"],
        ordering="FARE",
        indexes=["bitmap(CITY)"],
    )
    new_table.upsert(pa.Table.from_pylist(ROWS, SCHEMA))
    return new_table


def test_a_table_is_created_with_column_names_in_another_case(table):
    definition = table.definition
    assert (definition.key, definition.partition_by, definition.ordering) == (
        ("Id",),
        ("City",),
        ("Fare",),
    )
    assert definition.indexes[0].endswith("(City)")


def lower_case_table(rows):
    upper_case = pa.Table.from_pylist(rows, SCHEMA)
    return upper_case.rename_columns([name.lower() for name in upper_case.column_names])


def lower_case_dicts(rows):
    return [{name.lower(): value for name, value in row.items()} for row in rows]


FORMS = {
    "table": lower_case_table,
    "reader": lambda rows: lower_case_table(rows).to_reader(),
    "generator": lambda rows: iter(lower_case_table(rows).to_batches()),
    "dicts": lower_case_dicts,
    "generator of dicts": lambda rows: iter(lower_case_dicts(rows)),
    "columns": lambda rows: lower_case_table(rows).to_pydict(),
}


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("evolve", [False, True])
def test_rows_are_written_with_column_names_in_another_case(table, form, evolve):
    table.upsert(FORMS[form]([{**ROWS[0], "Fare": 9.0}, {**ROWS[1], "Id": 3}]), evolve=evolve)
    assert table.schema.names == SCHEMA.names
    assert table.scan(order_by="id").to_arrow().column("Fare").to_pylist() == [9.0, 7.0, 7.0]


def test_queries_accept_column_names_in_another_case(table):
    where, order = "CITY = 'Oslo' and AT.LAT = 1", ["fare", ("ID", "desc")]
    matching = table.scan(where, columns=["FARE", "id"], order_by=order).to_arrow()
    assert matching.to_pylist() == [{"Fare": 4.5, "Id": 1}]
    assert table.get([{"ID": 1, "CITY": "Oslo"}], columns=["fare"]).to_pylist() == [{"Fare": 4.5}]


def test_updates_merges_and_deletes_accept_column_names_in_another_case(table):
    table.update_where({"FARE": "fare + 1"}, "id = 1")
    table.update_where(values={"fare": 0.5}, where="ID = 2")
    merge = table.merge(lower_case_table([{**ROWS[0], "Fare": 8.0}]), on=["ID", "CITY"])
    merge.when_matched().update({"FARE": "source.FARE"}).execute()
    assert table.scan(order_by="Id").to_arrow().column("Fare").to_pylist() == [8.0, 0.5]
    table.delete(pa.table({"ID": [1], "CITY": ["Oslo"]}))
    assert table.scan().count() == 1


def test_an_exact_match_of_a_column_name_takes_precedence(table):
    rows = pa.Table.from_pylist([ROWS[0]], SCHEMA).append_column("id", pa.array([7]))
    refused("column 'id' is not in the table", table.upsert, rows)
    table.delete(rows.select(["id", "City", "Id"]))
    assert table.scan().to_arrow().column("Id").to_pylist() == [2]


def test_ambiguous_column_names_are_refused_with_the_candidates(
    table,
):
    rows = pa.table({"ID": [1], "id": [2], "City": ["Oslo"], "Fare": [1.0], "at": [{"Lat": 1}]})
    refused("the column 'Id' matches several columns of the data: ID, id", table.upsert, rows)
    assignments = {"fare": "1.0", "FARE": "2.0"}
    refused("names the column 'Fare' twice", table.update_where, assignments, "id = 1")
    assert table.scan().count() == 2


def test_an_unknown_column_name_is_refused_with_the_most_similar_column(table):
    message = "there is no column 'FAIR' … hint: did you mean Fare?"
    refused(message, table.scan, columns=["FAIR"])
    refused(message, table.scan, order_by="FAIR")
    refused(message, table.scan, "FAIR = 1")
    refused(message, table.update_where, {"FAIR": "1.0"}, "id = 1")
