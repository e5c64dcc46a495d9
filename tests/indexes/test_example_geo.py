"""The grid over two columns and the predicate function of the example package: conformance, and
mutants that must die.
"""

import math
import struct
import zlib
from typing import ClassVar

import example_geo
import numpy as np
import pyarrow as pa
import pytest
from counting import count
from example_geo import EARTH_KM, GridIndex, _may_hold, floats, within_km
from example_keys import ExactKeyIndex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexes.base import InMemory
from indexes.key_testing import KeyIndexConformance
from indexes.key_testing import first_failure as first_failure_of_keys
from indexes.predicate import call, negate
from indexes.testing import SeveralColumnsConformance, first_failure, violations

LATITUDES = st.sampled_from((-90.0, -89.99, -0.5, 0.0, 59.9, 60.0, 89.999, 90.0)) | st.floats(
    -90, 90
)
LONGITUDES = st.sampled_from((-180.0, -179.99, -0.01, 0.0, 10.7, 11.0, 179.99, 180.0)) | st.floats(
    -180, 180
)
KM = st.sampled_from(
    (0.0, 1e-6, 5.0, 60.0, 111.0, 160.0, 200.0, 1000.0, 10_000.0, 20_016.0, 1e9, -1.0)
) | st.floats(0, 300)
STEPS = st.sampled_from((-300.0, -91.0, -1.5, -0.7, 0.0, 0.7, 1.5, 91.0, 300.0))


def _places(seen):
    """Places near points that were seen, and anywhere; distances of the order of what lies
    between.
    """
    points = [row for row in seen if None not in row and all(math.isfinite(x) for x in row)]
    anywhere = st.tuples(LATITUDES, LONGITUDES)
    if not points:
        return anywhere
    near = st.builds(
        lambda at, up, right: (float(at[0]) + up, float(at[1]) + right),
        st.sampled_from(points),
        STEPS,
        STEPS,
    )
    return st.one_of(near, near, near, anywhere)


def _within(columns, places):
    return st.builds(lambda at, km: call("within_km", columns, (*at, km)), places, KM)


class Geo(SeveralColumnsConformance):
    columns: ClassVar = {"lat": pa.float64(), "lon": pa.float64()}
    values: ClassVar = {"lat": LATITUDES, "lon": LONGITUDES}

    def asked(self, seen):
        inside = _places(seen).map(
            lambda at: (min(90.0, max(-90.0, at[0])), (at[1] + 180) % 360 - 180)
        )
        odd = st.sampled_from(((math.nan, 1.0), (100.0, 1.0), (None, 1.0), (1.0, None)))
        swapped = _within(("lon", "lat"), inside.map(lambda at: at[::-1]))
        there = _within(("lat", "lon"), inside)
        return st.one_of(there, there, there, swapped, _within(("lat", "lon"), odd | _places(seen)))


class TestGrid(Geo):
    index = GridIndex()


class TestFineGrid(Geo):
    index = GridIndex(cell="0.25")
    columns: ClassVar = {"lat": pa.float32(), "lon": pa.decimal128(9, 4)}
    values: ClassVar = {
        "lat": st.floats(-90, 90, width=32),
        "lon": st.decimals(-180, 180, places=4),
    }


class TestExactKeys(KeyIndexConformance):
    index = ExactKeyIndex()


class TestExactKeysOf64Bits(KeyIndexConformance):
    index = ExactKeyIndex(bits="64")


def test_a_grid_takes_two_columns_of_numbers():
    numbers = pa.struct([("lat", pa.float32()), ("lon", pa.int16())])
    assert GridIndex().supports(numbers)
    for other in (
        pa.float64(),
        pa.struct([("lat", pa.string()), ("lon", pa.float64())]),
        pa.struct([("lat", pa.float64())]),
    ):
        assert not GridIndex().supports(other)
    for cell in ("0", "91", "x", "nan"):
        with pytest.raises(ValueError):
            GridIndex(cell=cell)


def test_a_grid_proves_distant_places_empty_around_the_globe():
    """It is of use: what is far away is NO, also beyond the date line and the poles."""
    type = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
    places = pa.StructArray.from_arrays(
        [pa.array([-17.7, -17.9]), pa.array([179.9, -179.8])], ["lat", "lon"]
    )
    summary = InMemory(GridIndex().summarize(places))
    asked = [
        ((-17.8, -179.95, 60.0), True),
        ((-17.8, 170.0, 60.0), False),
        ((89.9, 0.0, 200.0), False),
        ((62.0, 179.9, 5.0), False),
    ]
    for at, expected in asked:
        assert GridIndex().prune(
            [summary], call("within_km", ("lat", "lon"), at), type
        ).tolist() == [expected], at


@given(lat=LATITUDES, lon=LONGITUDES, at_lat=LATITUDES, at_lon=LONGITUDES)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_distance_is_that_of_the_great_circle(lat, lon, at_lat, at_lon):
    (a, b), (c, d) = (map(math.radians, pair) for pair in ((lat, lon), (at_lat, at_lon)))
    cosine = math.sin(a) * math.sin(c) + math.cos(a) * math.cos(c) * math.cos(b - d)
    km = EARTH_KM * math.acos(max(-1.0, min(1.0, cosine)))
    points = pa.array([lat]), pa.array([lon])
    assert within_km(*points, at_lat, at_lon, km + 1).tolist() == [True]
    assert within_km(*points, at_lat, at_lon, km - 1).tolist() == [False]


# Mutants: each is an index that loses rows


class _BlindToTheDateLine(GridIndex):
    def prune(self, summaries, leaf, type):
        found = super().prune(summaries, leaf, type)
        if not self.can_test(leaf, type) or None in leaf.value:
            return found
        _, lon, km = leaf.value
        cells = [example_geo._opened(s.data)[1] for s in summaries]
        far = [
            c is not None and len(c) and np.all(np.abs(c[:, 1] - 180 - lon) > 2 + km) for c in cells
        ]
        return found & ~np.array(far, np.bool_)


class _Negated(GridIndex):
    def can_test(self, leaf, type):
        return leaf.op.endswith("within_km") and leaf.columns == tuple(field.name for field in type)


class _Swapped(GridIndex):
    def can_test(self, leaf, type):
        return leaf.op == "within_km"


class _ForgetsOddPlaces(GridIndex):
    def summarize(self, values):
        lat, lon = map(floats, values.flatten())
        kept = (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
        return super().summarize(values.filter(pa.array(kept)))


class _TooSmall(GridIndex):
    def prune(self, summaries, leaf, type):
        if self.can_test(leaf, type) and None not in leaf.value:
            lat, lon, km = leaf.value
            leaf = call("within_km", leaf.columns, (lat, lon, max(km * 0.7 - 100, 0.0)))
        opened = [example_geo._opened(s.data) for s in summaries]
        if not self.can_test(leaf, type) or None in leaf.value or not abs(leaf.value[0]) <= 90:
            return np.ones(len(summaries), np.bool_)
        return np.array(
            [c is None or _may_hold(c, size, *leaf.value) for size, c in opened], np.bool_
        )


class _NoNulls(GridIndex):
    """Takes a point with a null coordinate for one at zero, and a segment with such for one without
    others.
    """

    def summarize(self, values):
        rows = [row for row in values.to_pylist() if None not in row.values()]
        return super().summarize(
            pa.array(rows[:1], values.type) if len(rows) < len(values) else values
        )


POINTS = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
SEGMENTS = [
    pa.array([{"lat": lat, "lon": lon} for lat, lon in rows], POINTS)
    for rows in (
        [(-17.7, 179.9), (-17.9, -179.8)],
        [(59.9, 10.7), (59.91, 10.71), (None, 10.0)],
        [(61.0, 10.7)],
        [(10.7, 59.9)],
        [(180.0, 10.7), (0.5, 0.5)],
        [(math.nan, 10.7), (1.0, None)],
        [],
        [(-17.8, 179.95)],
        [(30.0, 30.0), (None, 1.0), (-17.8, -179.9)],
    )
]
CASES = [
    call("within_km", columns, at)
    for columns, at in (
        (("lat", "lon"), (-17.8, -179.9, 60.0)),
        (("lat", "lon"), (59.9, 10.7, 5.0)),
        (("lat", "lon"), (60.9, 10.7, 50.0)),
        (("lon", "lat"), (59.9, 10.7, 5.0)),
        (("lat", "lon"), (0.0, -169.3, 5.0)),
        (("lat", "lon"), (59.91, 10.71, 0.1)),
        (("lat", "lon"), (59.8, 10.7, 30.0)),
    )
]


def _wrong(index):
    asked = [leaf for one in CASES for leaf in (one, negate(one)) if index.can_test(leaf, POINTS)]
    return violations(index, SEGMENTS, asked, POINTS)


def test_the_grid_is_right_on_the_fixed_cases():
    assert _wrong(GridIndex()) == [] and _wrong(GridIndex(cell="0.05")) == []


@pytest.mark.parametrize(
    "mutant", [_BlindToTheDateLine, _Negated, _Swapped, _ForgetsOddPlaces, _TooSmall, _NoNulls]
)
def test_a_grid_that_loses_rows_is_caught(mutant):
    assert _wrong(mutant())
    count("mutants of the index on two columns, all caught")


def test_a_grid_that_loses_rows_fails_the_suite():
    assert first_failure(type("Suite", (Geo,), {"index": _Negated()})) == "test_a_no_is_a_proof"


class _ForgetsTheLastKey(ExactKeyIndex):
    def build(self, keys, hashes, group, groups):
        return super().build(
            keys.slice(0, max(0, len(keys) - 1)),
            hashes.take(np.arange(max(0, len(keys) - 1))),
            group[:-1],
            groups,
        )


class _BelievesItsBytes(ExactKeyIndex):
    def locate(self, key_part, keys, hashes):
        data = bytearray(key_part)
        if len(data) >= 20:
            struct.pack_into("<I", data, 16, zlib.crc32(data[20:], zlib.crc32(data[:16])))
        return super().locate(bytes(data), keys, hashes)


class _MergesWithoutNewNumbers(ExactKeyIndex):
    def merge(self, key_parts, groups, total):
        return super().merge(
            key_parts, [np.where(g >= 0, np.arange(len(g)), -1) for g in groups], max(total, 8)
        )


@pytest.mark.parametrize(
    "mutant", [_ForgetsTheLastKey, _BelievesItsBytes, _MergesWithoutNewNumbers]
)
def test_a_key_index_that_loses_keys_fails_the_suite(mutant):
    assert (
        first_failure_of_keys(type("Suite", (KeyIndexConformance,), {"index": mutant()}))
        is not None
    )
