"""A key that occurs twice in a batch is found whatever the order of the rows: of rows that rise by
key nobody looks further.
"""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mdt
from mdt.errors import Invalid
from mdt.write import normalize as normalizing

KEYS = {
    "text": (pa.string(), st.text(min_size=1, max_size=3)),
    "number": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int8(), st.integers(-128, 127)),
    "flag": (pa.bool_(), st.booleans()),
}


def table_of(path, kind):
    schema = pa.schema([("k", KEYS[kind][0]), ("ts", pa.int64()), ("v", pa.int64())])
    return mdt.create(path / kind, schema, key=["k"], ordering="ts")


@pytest.fixture(scope="module")
def definitions(tmp_path_factory):
    root = tmp_path_factory.mktemp("repeated")
    return {kind: table_of(root, kind).snapshot().definition for kind in KEYS}


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_the_last_row_of_a_key_stays(definitions, data, kind, in_order):
    keys = data.draw(st.lists(KEYS[kind][1], min_size=1, max_size=30))
    if in_order:
        keys.sort(key=lambda key: key.encode() if isinstance(key, str) else key)
    orderings = data.draw(st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys)))
    rows = pa.table({"k": keys, "ts": orderings, "v": range(len(keys))}, definitions[kind].schema)
    newest = {}
    for number, (key, ordering) in enumerate(zip(keys, orderings, strict=True)):
        if key not in newest or ordering >= newest[key][0]:
            newest[key] = ordering, number
    found = normalizing.normalize(rows, definitions[kind])
    assert dict(zip(found.table["k"].to_pylist(), found.table["v"].to_pylist(), strict=True)) == {
        key: number for key, (_, number) in newest.items()
    }
    assert found.duplicates == len(keys) - len(newest) == len(keys) - len(found)


def test_an_insert_names_a_key_that_repeats_among_keys_that_rise(tmp_path):
    table = table_of(tmp_path, "text")
    keys = [f"k{n:04}" for n in range(1000)]
    keys[501] = keys[500]
    with pytest.raises(Invalid, match="1 rows repeat a key: \\['k0500'\\]"):
        table.bulk_insert(pa.table({"k": keys, "ts": [1] * 1000, "v": [1] * 1000}, table.schema))
