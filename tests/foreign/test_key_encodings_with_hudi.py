"""Hudi and mdt write in turns to tables with one key column and several partition columns. By
default, Hudi writes record keys such as ``id:k007`` to such tables.
"""

import pyarrow as pa
import pytest
from hudi_session import HudiSession
from test_default_options_with_hudi import CHOSEN, require_same_rows

import mdt

PARTITIONED = CHOSEN | {"hoodie.datasource.write.partitionpath.field": "city,v"}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"}
KEYGEN = "hoodie.write.complex.keygen"
VALUES = {f"{KEYGEN}.new.encoding": "true", f"{KEYGEN}.validation.enable": "false"}
"""Options of Hudi for record keys without column names. Version 9 does not support them."""
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("is_adopted", [True, False])
@pytest.mark.parametrize(
    ("version", "options", "key_index", "begin"),
    [
        (9, {}, "bloom", "id:"),
        (9, BUCKETS, "bucket(buckets='4')", "id:"),
        (6, VALUES, "record", ""),
    ],
)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_and_mdt_encode_record_keys_alike_and_write_none_twice(
    kind, version, options, key_index, begin, is_adopted, tmp_path
):
    with HudiSession(tmp_path / "session") as hudi:
        source, path = tmp_path / "made", tmp_path / "t"
        if is_adopted:
            source = path
        hudi.create(source, version, kind, PARTITIONED | options)
        hudi.call(source, "upsert", list(range(12)), 10)
        rows = mdt.open(source).scan().to_arrow()
        if is_adopted:
            ours = mdt.adopt(path, key_index=key_index)
        else:
            ours = mdt.create(
                path,
                rows.schema,
                key=["id"],
                partition_by=["city", "v"],
                ordering="ts",
                table_type=kind,
                version=version,
                key_index=key_index,
            )
            ours.insert(rows)
            hudi.create(path, version, kind, PARTITIONED | options)
        for turn in (1, 2):
            changed = [{**row, "ts": 20 * turn} for row in rows.to_pylist()[2 * turn :]]
            ours.upsert(pa.Table.from_pylist(changed, rows.schema))
            require_same_rows(hudi, path)
            hudi.call(path, "upsert", [turn, 5, 20 + turn], 20 * turn + 10)
            hudi.call(path, "delete", [8 + turn], 20 * turn + 11)
            require_same_rows(hudi, path)
            ours.delete(rows.slice(turn + 2, 1))
            require_same_rows(hudi, path)
        keys = ours.scan(columns=["_hoodie_record_key"]).to_arrow()["_hoodie_record_key"]
        numbers = sorted(key.removeprefix(f"{begin}k") for key in keys.to_pylist())
        assert len(set(numbers)) == len(numbers) and all(map(str.isdecimal, numbers))
        assert ours.check().ok
