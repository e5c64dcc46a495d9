"""Hudi and mdt write in turns to adopted tables whose partition paths Hudi derives from a time, or
with its custom key generator.
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


def text_times(java, spark=None, **more):
    """Return Hudi's options for times as texts, and Spark's expression for these texts.

    Args:
        java: Pattern of the texts for Hudi.
        spark: Pattern of the texts for Spark, by default the same.
    """
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
    "offset": text_times(OFFSET),
    "offset and zone": text_times(OFFSET, **NEW_YORK),
    "zone": text_times("yyyyMMdd HH:mm", **NEW_YORK),
    "zone of texts": text_times("yyyyMMdd HH:mm", **{f"{PREFIX}input.timezone": "Asia/Tokyo"}),
    "no zone": text_times("yyyy-MM-dd"),
    "coarse": text_times("yyyyMMdd", **NEW_YORK, **{f"{PREFIX}output.dateformat": "yyyy/MM/dd/HH"}),
}
"""Name -> options of Hudi, and Spark's expression for the column ``seen``."""
VALUES = {"custom values": ({**CUSTOM, FIELD: "city:SIMPLE,seen:SIMPLE"}, "n % 3")}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_and_mdt_write_rows_to_the_same_partitions(kind, version, tmp_path):
    with HudiSession(tmp_path / "session") as hudi:
        kinds = KINDS | (
            VALUES if version > 6 else {}
        )  # version 6 does not store the types of partition fields
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
            require_same_rows(hudi, path, ours, 20 + len(new))
            hudi.call(path, "upsert", list(range(5, 25)), 20)
            require_same_rows(hudi, path, ours, 25 + len(new))


def require_same_rows(hudi, path, ours, count):
    columns = ["id", "city", "ts", "v", "_hoodie_partition_path"]
    theirs = hudi.rows(path).select(columns).sort_by("id").to_pylist()
    our_rows = ours.scan(columns=columns).to_arrow().sort_by("id").to_pylist()
    assert our_rows == theirs and len(our_rows) == count
    assert ours.check().ok
