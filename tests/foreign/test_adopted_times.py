"""Tables whose partition paths Hudi makes of a time, or by its custom key generator, adopted and
written in turns.
"""

from __future__ import annotations

import pytest
from hudi_session import HudiSession

import mdt

PREFIX = "hoodie.keygen.timebased."
KEYGEN = "hoodie.datasource.write.keygenerator.class"
FIELD = "hoodie.datasource.write.partitionpath.field"
OPTIONS = {
    KEYGEN: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    FIELD: "seen",
    "hoodie.datasource.write.hive_style_partitioning": "false",
    f"{PREFIX}output.dateformat": "yyyy/MM/dd",
}
CUSTOM = {**OPTIONS, KEYGEN: "org.apache.hudi.keygen.CustomKeyGenerator"}
SECONDS = "(1700000000L + n * 40000L)"
TOKYO = {f"{PREFIX}timezone": "Asia/Tokyo"}
NEW_YORK = {f"{PREFIX}timezone": "America/New_York"}


def of_text(java, spark=None, **more):
    """Return options for texts with a pattern, and the expression of Spark that makes them."""
    options = {f"{PREFIX}timestamp.type": "DATE_STRING", f"{PREFIX}input.dateformat": java, **more}
    return options, f"date_format(timestamp_seconds({SECONDS}), {spark or java!r})"


OFFSET = "yyyy-MM-dd'T'HH:mm:ss.SSSZ"
KINDS = {
    **{
        unit: ({f"{PREFIX}timestamp.type": unit, **TOKYO}, f"{SECONDS} * {per_second}L")
        for unit, per_second in (
            ("UNIX_TIMESTAMP", 1),
            ("EPOCHMILLISECONDS", 1_000),
            ("EPOCHMICROSECONDS", 1_000_000),
        )
    },
    "offset": of_text(OFFSET),
    "offset and zone": of_text(OFFSET, **NEW_YORK),
    "zone": of_text("yyyyMMdd HH:mm", **NEW_YORK),
    "zone of texts": of_text("yyyyMMdd HH:mm", **{f"{PREFIX}input.timezone": "Asia/Tokyo"}),
    "no zone": of_text("yyyy-MM-dd"),
    "coarse": of_text("yyyyMMdd", **NEW_YORK, **{f"{PREFIX}output.dateformat": "yyyy/MM/dd/HH"}),
}
"""Options of Hudi, and the expression of Spark for the column ``seen``."""
VALUES = {"custom values": ({**CUSTOM, FIELD: "city:SIMPLE,seen:SIMPLE"}, "n % 3")}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_both_writers_put_each_row_into_the_same_partition(kind, version, tmp_path):
    with HudiSession(tmp_path / "session") as hudi:
        kinds = KINDS | (VALUES if version > 6 else {})  # version 6 does not store the types
        for name, (options, expression) in kinds.items():
            path = tmp_path / name.replace(" ", "_")
            hudi.create(path, version, kind, {**OPTIONS, **options})
            hudi.call(path, "set_column", "seen", f"if(n % 5 = 0, null, {expression})")
            hudi.call(path, "upsert", list(range(20)), 10)
            ours = mdt.adopt(path)
            paths = set(ours.files()["partition"].to_pylist())
            assert len(paths) > 5, name
            changed = ours.scan("v < 12").to_arrow()
            new = changed.set_column(
                changed.schema.get_field_index("id"),
                "id",
                [[f"new{number}" for number in range(len(changed))]],
            )
            ours.upsert(changed)
            ours.insert(new)
            assert set(ours.files()["partition"].to_pylist()) == paths, name
            same_rows(hudi, path, ours, 20 + len(new))
            hudi.call(path, "upsert", list(range(5, 25)), 20)
            same_rows(hudi, path, ours, 25 + len(new))


def same_rows(hudi, path, ours, count):
    columns = ["id", "city", "ts", "v", "_hoodie_partition_path"]
    theirs = hudi.rows(path).select(columns).sort_by("id").to_pylist()
    found = ours.scan(columns=columns).to_arrow().sort_by("id").to_pylist()
    assert found == theirs and len(found) == count
    assert ours.check().ok
