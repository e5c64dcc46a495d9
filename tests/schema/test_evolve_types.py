"""Every type of data upserted with evolve into every type of column. The rows fit, or an Invalid
error gives the reason.
"""

import pyarrow as pa
import pytest
from declared_types import FLAT
from refusals import refused

import mdt
from mdt.errors import Invalid, MdtError
from mdt.schema.alter import apply_alteration
from mdt.schema.evolve import add_missing_columns, evolution
from mdt.stores.storage import MemoryStorage
from mdt.write.normalize import normalize

NESTED = {
    "list": (pa.list_(pa.int32()), [[1], None]),
    "struct": (pa.struct([("a", pa.int32())]), [{"a": 1}, None]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("k", 1)], None]),
}
TYPES = {**FLAT, **NESTED, "null": (pa.null(), [None, None])}


def array_of(values, type):
    if pa.types.is_dictionary(type):
        # older releases of pyarrow do not convert every value type to a dictionary
        return pa.array(values, type.value_type).dictionary_encode().cast(type)
    return pa.array(values, type)


def definition_with(type):
    columns = pa.schema({"id": pa.int64(), "v": type})
    return mdt.create(MemoryStorage(), columns, ["id"]).definition


def evolve(data, definition):
    alteration = evolution(data.schema, definition)
    if not alteration:
        return definition
    version = apply_alteration(definition, alteration, 1)
    return definition.with_version(version)


@pytest.mark.parametrize("old", [name for name in TYPES if name != "null"])
def test_data_of_any_type_fits_the_column_or_the_error_names_column_types_and_a_remedy(
    old,
):
    definition, fitting_types = definition_with(TYPES[old][0]), set()
    for new, (type, values) in TYPES.items():
        data = pa.table({"id": [1, 2], "v": array_of(values, type)})
        try:
            after = evolve(data, definition)
            assert len(normalize(add_missing_columns(data, after), after)) == 2
            fitting_types.add(new)
        except MdtError as error:
            assert isinstance(error, Invalid) and error.hint
            assert f"column 'v' is {type}, the table has {TYPES[old][0]}" in error.message, new
            remedies = ("cast the column", "time zone", "row ")
            assert any(remedy in error.message for remedy in remedies), error.message
    assert {old, "null"} <= fitting_types


@pytest.mark.parametrize("value", ["seven", b"x", True, [1], {"a": 1}])
def test_python_values_that_do_not_fit_are_refused_and_the_table_is_not_altered(value):
    for type in (pa.float64(), pa.int64()):
        table = mdt.create(MemoryStorage(), pa.schema({"id": pa.int64(), "n": type}), ["id"])
        for data in ([{"id": 6, "n": value}], pa.table({"id": [6], "n": [value]})):
            refused("column 'n'", table.upsert, data, evolve=True)
        assert table.snapshot().seq == 0
