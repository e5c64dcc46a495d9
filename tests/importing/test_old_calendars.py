"""Base files of Hudi's writers with dates and times in the Julian calendar of older Spark."""

from datetime import date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from other_writer import OtherWriter
from refusals import refused

import mdt
from mdt.errors import Unsupported
from mdt.metadata.files import paths
from mdt.stores.storage import MemoryStorage

LEGACY = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "3.5.9"}
LEGACY_96 = {"org.apache.spark.legacyINT96": "", "org.apache.spark.version": "3.5.9"}
OLD = {
    "day": [date(1500, 1, 1), None],
    "time": pa.array([datetime(1890, 1, 1), None], pa.timestamp("us", "UTC")),
    "nested": [{"days": [date(2024, 1, 1), date(1500, 1, 1)]}, None],
}


def create_table_of_spark(values, told, *, has_log=False, **named):
    """Return the storage of a table with a base file that has ``told`` in its footer."""
    storage, rows = MemoryStorage(), pa.table({"id": [1, 2], "at": values})
    theirs = mdt.create(OtherWriter(storage), rows.schema, ["id"])
    theirs.insert(rows)
    if has_log:
        theirs.delete([{"id": 2}])
    [path] = (info.path for info in storage.list("") if info.path.endswith(".parquet"))
    stored = pq.read_table(pa.BufferReader(storage.read(path)))
    content = pa.BufferOutputStream()
    pq.write_table(stored.replace_schema_metadata(told), content, **named)
    storage.delete(path)
    storage.create(path, content.getvalue().to_pybytes())
    return storage


@pytest.mark.parametrize("has_log", [False, True])
@pytest.mark.parametrize("values", OLD.values(), ids=OLD.keys())
@pytest.mark.parametrize("told", [LEGACY, {"org.apache.spark.version": "2.4.8"}])
def test_tables_with_dates_in_the_julian_calendar_are_refused(values, told, has_log):
    storage = create_table_of_spark(values, told, has_log=has_log)
    message = "may have dates or times in the Julian calendar … datetimeRebaseModeInWrite=CORRECTED"
    refused(message, lambda: mdt.open(storage).scan().to_arrow(), kind=Unsupported)
    refused(message, mdt.adopt, storage, kind=Unsupported)
    assert not storage.list(paths.PRIVATE)


def test_int96_times_are_refused_if_their_writer_may_have_rebased_them():
    writer_options = {"use_deprecated_int96_timestamps": True}
    times = pa.array([datetime(2024, 1, 1), None], pa.timestamp("us", "UTC"))
    storage = create_table_of_spark(times, LEGACY_96, **writer_options)
    refused("Julian calendar", lambda: mdt.open(storage).scan().to_arrow(), kind=Unsupported)
    storage = create_table_of_spark(
        times, LEGACY, **writer_options
    )  # this writer does not rebase int96 times
    assert mdt.open(storage).scan().count() == 2


@pytest.mark.parametrize("has_log", [False, True])
@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([date(1582, 10, 15), None], LEGACY),
        (pa.array([datetime(1900, 1, 1), None], pa.timestamp("us", "UTC")), LEGACY),
        (pa.nulls(2, pa.date32()), LEGACY),
        ([date(1500, 1, 1), None], {"org.apache.spark.version": "3.5.9"}),
    ],
    ids=["day", "time", "nulls", "corrected"],
)
def test_dates_that_are_equal_in_both_calendars_are_read(values, told, has_log):
    rows = mdt.open(create_table_of_spark(values, told, has_log=has_log)).scan().to_arrow()
    at = pa.table({"at": values})["at"].to_pylist()
    assert sorted(rows["id"].to_pylist()) == [1, 2][: len(rows)]
    assert {row["id"]: row["at"] for row in rows.to_pylist()}[1] == at[0]
