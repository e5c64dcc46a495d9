"""Values of Arrow and Hudi that Python types cannot hold, as dicts and as JSON."""

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest
from command_line import document, shown

import mdt
from mdt.schema.python_values import rows_of

FAR = {
    "timestamp": (
        pa.array([253402300800], pa.timestamp("s")),
        np.datetime64("10000-01-01T00:00:00"),
        "10000-01-01T00:00:00",
    ),
    "zone": (
        pa.array([-62135596800 * 10**6], pa.timestamp("us", "America/New_York")),
        np.datetime64("0001-01-01T00:00:00.000000"),
        "0001-01-01T00:00:00.000000",
    ),
    "date": (
        pa.array([2**31 - 1], pa.int32()).view(pa.date32()),
        np.datetime64(2**31 - 1, "D"),
        "5881580-07-11",
    ),
    "before Christ": (
        pa.array([-62135596801], pa.timestamp("s")),
        np.datetime64("0000-12-31T23:59:59"),
        "0000-12-31T23:59:59",
    ),
}


def create_table(path, values):
    table = mdt.create(path, pa.schema([("id", pa.int64()), ("x", values.type)]), ["id"])
    table.upsert(pa.table({"id": [1], "x": values}))
    return table


@pytest.mark.parametrize("name", FAR)
def test_times_outside_of_pythons_range_are_returned_as_numpy_values(tmp_path, name):
    values, expected, _ = FAR[name]
    table = create_table(tmp_path / "t", values)
    assert table.get(1) == {"id": 1, "x": expected}
    assert table.get([1])["x"].chunk(0).equals(values)


def test_the_command_line_prints_times_outside_of_pythons_range_as_text(tmp_path):
    for name, (values, _, text) in FAR.items():
        create_table(tmp_path / name, values)
        assert document("scan", tmp_path / name) == {"id": 1, "x": text}
        assert text in shown("scan", tmp_path / name)


def test_nested_times_and_durations_outside_of_pythons_range_are_numpy_values():
    far, near = 253402300800, 0
    second = pa.timestamp("s")
    type = pa.struct({"at": pa.list_(second), "by": pa.map_(pa.string(), second)})
    inside = pa.array([{"at": [near, far], "by": [("k", far)]}], type)
    long = pa.array([2**62], pa.duration("s"))
    (row,) = rows_of(pa.table({"long": long, "in": inside, "note": ["n"]}))
    moment = np.datetime64(far, "s")
    expected = {"at": [datetime(1970, 1, 1), moment], "by": [("k", moment)]}
    assert row == {"long": np.timedelta64(2**62, "s"), "in": expected, "note": "n"}


def test_invalid_utf8_raises_a_decode_error():
    broken = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(UnicodeDecodeError):
        rows_of(pa.table({"x": broken}))
