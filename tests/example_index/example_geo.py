"""``within_km(lat, lon, 59.9, 10.7, 5)``, a predicate function, and ``grid(lat, lon)``, an index
that prunes row groups for it.

For every row group, the grid stores the cells with its points. Cells are squares of one degree by
default. Points within some kilometres of a place are in a band of latitudes and, away from the
poles, in a band of longitudes. A row group without a cell in both bands has no such point. Points
that are null, NaN or infinite are within no distance. The index proves nothing about invalid
coordinates such as a latitude of 100: a row group with one is never pruned.
"""

import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import functions
from indexes.base import BoolArray, SkippingIndex, Summary, whole
from indexes.predicate import Leaf

EARTH_KM = 6371.0088
"""Mean radius of the earth."""
CELLS_MAX = 4096
"""A row group with points in more cells is stored as one that may have any point."""

_HEADER = struct.Struct("<4sdBI")
_CRC = struct.Struct("<I")
_MAGIC = b"GRD1"
_SLACK = 1e-5
"""Degrees, about a metre. Rounding moves a point by less."""

Floats = npt.NDArray[np.float64]


@functions.register(columns=2, arguments=(float, float, float))
def within_km(
    lat: pa.Array, lon: pa.Array, at_lat: float, at_lon: float, km: float
) -> npt.NDArray[np.bool_]:
    """Return True for each point, in degrees, at most ``km`` from a place along a great circle ->
    bool[n].
    """
    south, west = (np.radians(floats(column)) for column in (lat, lon))
    d_lat, d_lon = south - math.radians(at_lat), west - math.radians(at_lon)
    with np.errstate(invalid="ignore"):  # infinite and NaN are within no distance
        half = (
            np.sin(d_lat / 2) ** 2
            + np.cos(south) * math.cos(math.radians(at_lat)) * np.sin(d_lon / 2) ** 2
        )
        return np.asarray(2 * EARTH_KM * np.arcsin(np.sqrt(np.clip(half, 0, 1))) <= km)


def floats(column: pa.Array) -> Floats:
    """Return numbers [n] as float64, NaN for null. Raises TypeError for other types."""
    if not _is_number(column.type):
        raise TypeError(f"{column.type} is no number")
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))


class GridIndex(SkippingIndex):
    """Cells of latitude and longitude.

    Bytes: magic, size of a cell in degrees (float64), 1 if it may have any point, number of cells
    n, n pairs of int32 (row from the south pole, column from longitude -180), CRC-32 of all bytes
    before it. All numbers are little-endian.
    """

    name = "grid/1"
    several_columns = True
    row_groups = True
    functions = frozenset(("within_km",))

    def __init__(self, cell: str = "1") -> None:
        """cell: The side of a cell in degrees, 0.001 to 90."""
        self._cell = float(cell)
        if not 0.001 <= self._cell <= 90:
            raise ValueError(f"cell={cell!r} must be 0.001 to 90 degrees")

    def supports(self, type: pa.DataType) -> bool:
        """Accept structs of two numbers: latitude, then longitude."""
        return (
            pa.types.is_struct(type)
            and type.num_fields == 2
            and all(map(_is_number, (field.type for field in type)))
        )

    def summarize(self, values: pa.Array) -> bytes:
        """Encode the cells of the points. Points that are null, NaN or infinite are omitted."""
        columns = values.flatten()
        present = pc.and_(*map(pc.is_valid, columns))
        lat, lon = (floats(column.filter(present)) for column in columns)
        is_finite = np.isfinite(lat) & np.isfinite(lon)
        lat, lon = lat[is_finite], lon[is_finite]
        cells = np.empty((0, 2), np.int32)
        anywhere = not _are_places(lat, lon)
        if not anywhere:
            cells = np.unique(
                np.stack([(lat + 90) // self._cell, (lon + 180) // self._cell], axis=1).astype(
                    np.int32
                ),
                axis=0,
            )
            anywhere = len(cells) > CELLS_MAX
        body = b"" if anywhere else cells.astype("<i4").tobytes()
        head = _HEADER.pack(_MAGIC, self._cell, anywhere, len(body) // 8)
        return head + body + _CRC.pack(zlib.crc32(head + body))

    def can_test(self, leaf: Leaf, type: pa.DataType) -> bool:
        """Accept only the function itself, with latitude and longitude in this order. The index
        proves nothing about its negation.
        """
        return leaf.op == "within_km" and leaf.columns == tuple(field.name for field in type)

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """Return False for summaries without a cell in the bands around the place."""
        decoded = [_opened(bytes(whole(summary))) for summary in summaries]
        if not self.can_test(leaf, type) or not isinstance(leaf.value, tuple) or None in leaf.value:
            return np.ones(len(summaries), np.bool_)
        at_lat, at_lon, km = leaf.value
        if not (_are_places(np.array([at_lat]), np.array([at_lon])) and 0 <= km < math.inf):
            return np.ones(len(summaries), np.bool_)
        return np.array(
            [
                cells is None or _may_hold(cells, size, at_lat, at_lon, km)
                for size, cells in decoded
            ],
            np.bool_,
        )


def _is_number(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(type) or pa.types.is_integer(type) or pa.types.is_decimal(type)
    )


def _are_places(lat: Floats, lon: Floats) -> bool:
    """Return True if all coordinates are on the globe. NaN is not."""
    return bool(np.all(np.abs(lat) <= 90) and np.all(np.abs(lon) <= 180))


def _opened(data: bytes) -> tuple[float, npt.NDArray[np.int32] | None]:
    """Return the size of a cell and the cells of a summary, or None for any cell. Raises ValueError
    for other bytes.
    """
    if len(data) < _HEADER.size + _CRC.size or _CRC.unpack(data[-_CRC.size :])[0] != zlib.crc32(
        data[: -_CRC.size]
    ):
        raise ValueError("not a summary of grid/1, or a damaged one")
    magic, size, anywhere, count = _HEADER.unpack_from(data)
    if (
        magic != _MAGIC
        or not 0.001 <= size <= 90
        or len(data) != _HEADER.size + 8 * count + _CRC.size
    ):
        raise ValueError("not a summary of grid/1")
    return size, (
        None if anywhere else np.frombuffer(data, "<i4", 2 * count, _HEADER.size).reshape(-1, 2)
    )


def _may_hold(cells: npt.NDArray[np.int32], size: float, lat: float, lon: float, km: float) -> bool:
    """Return True if a cell may have a point at most ``km`` from a place."""
    reach = math.degrees(km / EARTH_KM) + _SLACK
    south = cells[:, 0] * size - 90
    near = (south <= lat + reach) & (south + size >= lat - reach)
    if abs(lat) + reach < 90:
        # The circle around the place touches the meridians this far east and west.
        turn = (
            math.degrees(
                math.asin(min(1.0, math.sin(math.radians(reach)) / math.cos(math.radians(lat))))
            )
            + _SLACK
        )
        west = cells[:, 1] * size - 180
        # distance of the cell's west side from the band's, eastward
        east_of = np.mod(west - (lon - turn), 360)
        near &= (east_of <= 2 * turn) | (east_of + size >= 360)
    return bool(near.any())
