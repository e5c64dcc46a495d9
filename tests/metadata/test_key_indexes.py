"""Key indexes by their names and by Hudi's, and what each of them does to a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import mdt
from mdt.config import INDEX_TYPES
from mdt.errors import Invalid
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("x", pa.float64())])


def rows(ids: Any, x: float = 0.0, cities: int = 3) -> pa.Table:
    return pa.table([[f"k{i:05d}" for i in ids], [f"c{i % cities}" for i in ids], [x] * len(ids)], schema=SCHEMA)


def made(**more: Any) -> mdt.Table:
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], **more)


@pytest.mark.parametrize("word", INDEX_TYPES)
def test_hudi_s_index_type_says_key_index_and_scope(word: str) -> None:
    kind, scope = INDEX_TYPES[word]
    table = made(options={"hoodie.index.type": word})
    assert (table.definition.key_index.partition("(")[0], table.definition.scope) == (kind, scope)
    table.upsert(rows(range(30)))
    again = mdt.open(table.storage, {"hoodie.index.type": word})
    done = again.upsert(rows(range(20, 40), 1.0))
    assert (done.inserted, done.updated) == (10, 10) and again.check().ok


def test_an_index_type_that_contradicts_is_refused() -> None:
    for given in ({"key_index": "record"}, {"scope": "table"}):
        with pytest.raises(Invalid, match="SIMPLE is key_index='simple' with scope='partition'"):
            made(options={"hoodie.index.type": "SIMPLE"}, **given)
    table = made(key_index="simple", scope="partition", options={"hoodie.index.type": "SIMPLE"})
    with pytest.raises(Invalid, match="GLOBAL_SIMPLE"):
        mdt.open(table.storage, {"hoodie.index.type": "GLOBAL_SIMPLE"})


def test_a_simple_index_lets_keys_live_in_every_group_of_their_partition_and_keeps_a_few_bytes() -> None:
    table = made(key_index="simple", options={"mdt.max.file.bytes": 4096, "mdt.metadata.compact.records": 2})
    table.bulk_insert(rows(range(3_000)))
    table.upsert(rows(range(2_999, 3_010), 1.0))
    again = mdt.open(table.storage)
    assert len(again.snapshot()) > 6 and not again.snapshot().uncovered
    assert sum(part.size for part in again.snapshot().key_parts) < 300
    assert again.scan("id = 'k00007' and city = 'c1'").to_arrow().num_rows == 1
    done = again.delete(rows(range(3_005, 3_020)))
    assert done.deleted == 5 and again.check().ok
