"""Repeated keys of a batch are detected in any order of the rows. Rows in ascending order of keys
need no further search.
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


def new_table(path, kind):
    schema = pa.schema([("k", KEYS[kind][0]), ("ts", pa.int64()), ("v", pa.int64())])
    return mdt.create(path / kind, schema, key=["k"], ordering="ts")


@pytest.fixture(scope="module")
def definitions(tmp_path_factory):
    root = tmp_path_factory.mktemp("repeated")
    return {kind: new_table(root, kind).snapshot().definition for kind in KEYS}


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_the_row_with_the_largest_ordering_value_or_the_last_of_equals_is_kept(
    definitions, data, kind, in_order
):
    keys = data.draw(st.lists(KEYS[kind][1], min_size=1, max_size=30))
    if in_order:
        keys.sort(key=lambda key: key.encode() if isinstance(key, str) else key)
    orderings = data.draw(st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys)))
    rows = pa.table({"k": keys, "ts": orderings, "v": range(len(keys))}, definitions[kind].schema)
    newest = {}
    for number, (key, ordering) in enumerate(zip(keys, orderings, strict=True)):
        if key not in newest or ordering >= newest[key][0]:
            newest[key] = ordering, number
    batch = normalizing.normalize(rows, definitions[kind])
    assert dict(zip(batch.table["k"].to_pylist(), batch.table["v"].to_pylist(), strict=True)) == {
        key: number for key, (_, number) in newest.items()
    }
    assert batch.duplicates == len(keys) - len(newest) == len(keys) - len(batch)


def test_an_insert_names_a_repeated_key_among_sorted_keys(tmp_path):
    table = new_table(tmp_path, "text")
    keys = [f"k{n:04}" for n in range(1000)]
    keys[501] = keys[500]
    with pytest.raises(Invalid, match="1 rows repeat a key: \\['k0500'\\]"):
        table.bulk_insert(pa.table({"k": keys, "ts": [1] * 1000, "v": [1] * 1000}, table.schema))
