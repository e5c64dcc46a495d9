"""The grid index over two columns and the predicate function of the example package: conformance,
and mutants that must be detected.
"""

import math
from typing import ClassVar

import example_geo
import numpy as np
import pyarrow as pa
import pytest
from counting import count
from example_geo import GridIndex, floats
from example_keys import ExactKeyIndex
from hypothesis import strategies as st

from indexes.key_testing import KeyIndexConformance
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


def _points_to_query(seen):
    """Draw points near the given ones, and points anywhere. Distances are similar to those between
    the points.
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
        on_the_globe = _points_to_query(seen).map(
            lambda at: (min(90.0, max(-90.0, at[0])), (at[1] + 180) % 360 - 180)
        )
        invalid = st.sampled_from(((math.nan, 1.0), (100.0, 1.0), (None, 1.0), (1.0, None)))
        swapped = _within(("lon", "lat"), on_the_globe.map(lambda at: at[::-1]))
        query = _within(("lat", "lon"), on_the_globe)
        return st.one_of(
            query, query, query, swapped, _within(("lat", "lon"), invalid | _points_to_query(seen))
        )


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


POINTS = pa.struct({"lat": "float64", "lon": "float64"})


def points(*rows):
    return pa.array([dict(zip(("lat", "lon"), row, strict=True)) for row in rows], POINTS)


# Mutants: indexes that lose rows


class _BlindToTheDateLine(GridIndex):
    def prune(self, summaries, leaf, type):
        verdicts = super().prune(summaries, leaf, type)
        _, lon, km = leaf.value
        cells = [example_geo._opened(summary.data)[1] for summary in summaries]
        near = [
            c is None or not len(c) or np.any(np.abs(c[:, 1] - 180 - lon) <= 2 + km) for c in cells
        ]
        return verdicts & np.array(near, np.bool_)


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
        lat, lon, km = leaf.value
        nearer = call("within_km", leaf.columns, (lat, lon, max(km * 0.7 - 100, 0.0)))
        return super().prune(summaries, nearer, type)


class _NoNulls(GridIndex):
    """Reduces a segment with a null coordinate to its first point."""

    def summarize(self, values):
        rows = [row for row in values.to_pylist() if None not in row.values()]
        return super().summarize(values if len(rows) == len(values) else values[:1])


SEGMENTS = [
    points((-17.7, 179.9), (-17.9, -179.8)),
    points((59.9, 10.7), (59.91, 10.71), (None, 10.0)),
    points((61.0, 10.7)),
    points((10.7, 59.9)),
    points((180.0, 10.7), (0.5, 0.5)),
    points((math.nan, 10.7), (1.0, None)),
    points(),
    points((-17.8, 179.95)),
    points((30.0, 30.0), (None, 1.0), (-17.8, -179.9)),
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


def violations_of(index):
    leaves = [
        leaf
        for function_call in CASES
        for leaf in (function_call, negate(function_call))
        if index.can_test(leaf, POINTS)
    ]
    return violations(index, SEGMENTS, leaves, POINTS)


def test_the_grid_has_no_violations_on_the_fixed_cases():
    assert violations_of(GridIndex()) == violations_of(GridIndex(cell="0.05")) == []


@pytest.mark.parametrize(
    "mutant", [_BlindToTheDateLine, _Negated, _Swapped, _ForgetsOddPlaces, _TooSmall, _NoNulls]
)
def test_every_mutant_of_the_grid_is_detected_by_the_fixed_cases(mutant):
    assert violations_of(mutant())
    count("mutants of the index on two columns, all caught")


def test_a_mutant_of_the_grid_fails_the_conformance_suite():
    assert first_failure(type("Suite", (Geo,), {"index": _Negated()})) == "test_a_no_is_a_proof"
