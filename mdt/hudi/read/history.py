"""Completion times of archived instants, from the history of tables of version 8 and 9.

The folder has ``_version_`` (the number N of the newest manifest), ``manifest_<N>`` (JSON with the
names of the valid files), and Parquet files ``<min>_<max>_<layer>.parquet`` with the instants
between two times. The archive of version 6 is not read: it does not contain completion times, and
all instants before the first active one are completed.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mdt.errors import Corrupt, Missing
from mdt.hudi.read.fields import parse_json
from mdt.hudi.read.objects import read_listed
from mdt.hudi.read.parquet_rows import DAMAGE
from mdt.limits import (
    FILE_BYTES_MAX,
    HEADER_JSON_BYTES_MAX,
    HINT_BYTES_MAX,
    HISTORY_COLUMN_BYTES_MAX,
    HISTORY_ROWS_MAX,
)
from mdt.stores.contract import check_size
from mdt.stores.storage import Storage

VERSION = "_version_"
"""Name of the object with the number of the newest manifest."""
MANIFEST = re.compile(r"manifest_(0|[1-9][0-9]{0,17})")
"""Names of manifests."""
_FILE = re.compile(r"([0-9]{1,20})_([0-9]{1,20})_([0-9]{1,3})\.parquet")
_NUMBER = re.compile(r"[0-9]{1,18}")
_TIME = re.compile(r"[0-9]{14,23}")
_TIME_BYTES_MAX = 20
_TIME_COLUMNS = ["instantTime", "completionTime"]


def completion_times(objects: Storage, folder: str, times: Collection[str]) -> dict[str, str]:
    """Return the completion time of each of ``times`` that the history contains.

    Only the files whose range contains one of ``times`` are opened, and only two columns are read.

    Args:
        folder: The history folder. It may be absent.

    Raises Corrupt for damaged objects, and Missing if a file was removed while it was needed.
    """
    completion: dict[str, str] = {}
    if not times:
        return completion
    ascending = sorted(times)
    wanted = pa.array(ascending, pa.string())
    for name, first, last in _history_files(objects, folder):
        if bisect_left(ascending, first) < bisect_right(ascending, last):
            completion |= _read(objects, f"{folder}/{name}", wanted)
    return completion


def _history_files(objects: Storage, folder: str) -> list[tuple[str, str, str]]:
    """Return the name, the first and the last instant of each valid file."""
    sizes = {}
    for info in objects.list_dir(folder):
        sizes[info.path.rpartition("/")[2]] = info.size
    manifest = _newest_manifest(objects, folder, sizes)
    if manifest not in sizes:
        return []
    path = f"{folder}/{manifest}"
    data = read_listed(objects, path, sizes[manifest], HEADER_JSON_BYTES_MAX)
    return [(name, *parse_file(name)[:2]) for name in manifest_files(data, path)]


def manifest_files(data: bytes, path: str) -> dict[str, int]:
    """Return name -> size in bytes of the files in the manifest at ``path``. Raises Corrupt."""
    files = {}
    for file in parse_json(data, path).records("files"):
        name = file.text("fileName")
        if _FILE.fullmatch(name) is None:
            raise Corrupt(f"{name[:200]!r} is not the name of a history file", path=path)
        files[name] = file.number("fileLen")
    return files


def parse_file(name: str) -> tuple[str, str, int]:
    """Return the first and the last instant, and the layer, in the name of a history file.

    >>> parse_file("20240229120000123_20240229120001456_2.parquet")
    ('20240229120000123', '20240229120001456', 2)
    """
    match = _FILE.fullmatch(name)
    assert match is not None, name
    return match[1], match[2], int(match[3])


def _newest_manifest(objects: Storage, folder: str, sizes: Mapping[str, int]) -> str:
    """Return the name of the newest manifest, or "" if there is none.

    If the version file is absent or damaged, the largest number decides.
    """
    versions = [int(match[1]) for match in map(MANIFEST.fullmatch, sizes) if match]
    if not versions:
        return ""
    newest = max(versions)
    if VERSION in sizes:
        text = _read_text(objects, f"{folder}/{VERSION}", sizes[VERSION])
        if _NUMBER.fullmatch(text) and int(text) in versions:
            newest = int(text)
    return f"manifest_{newest}"


def _read_text(objects: Storage, path: str, size: int) -> str:
    try:
        data = read_listed(objects, path, size, HINT_BYTES_MAX)
    except Missing:
        return ""
    return data.decode("ascii", "replace").strip()


def _read(objects: Storage, path: str, wanted: pa.Array) -> dict[str, str]:
    """Return the completion times of the instants ``wanted`` in one file."""
    try:
        with objects.open(path) as source:
            check_size(path, source.size(), FILE_BYTES_MAX)
            parquet = pq.ParquetFile(source, read_dictionary=_TIME_COLUMNS)
            _require_small(parquet.metadata, path)
            table = parquet.read(_TIME_COLUMNS, use_threads=False)
            times, completions = (_texts(table[name], path) for name in _TIME_COLUMNS)
            rows = pa.table([times, completions], _TIME_COLUMNS)
            rows = rows.filter(pc.is_in(times, wanted))
            completion = dict(zip(*(rows[name].to_pylist() for name in _TIME_COLUMNS), strict=True))
    except DAMAGE as error:
        raise Corrupt(f"a history file cannot be read: {str(error)[:200]}", path=path) from error
    for time in completion.values():
        if time is None or _TIME.fullmatch(time) is None:
            raise Corrupt("a history file has an invalid completion time", path=path)
    return completion


def _require_small(metadata: Any, path: str) -> None:
    """Raise Corrupt if the two columns could need much memory."""
    rows = size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows += group.num_rows
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in _TIME_COLUMNS:
                size += column.total_uncompressed_size
    if not 0 <= rows <= HISTORY_ROWS_MAX or not 0 <= size <= HISTORY_COLUMN_BYTES_MAX:
        raise Corrupt(
            f"a history file with {rows} rows and {size} bytes of times is too large", path=path
        )


def _texts(column: pa.ChunkedArray, path: str) -> pa.ChunkedArray:
    """Return a dictionary column as strings. Refuses long ones before they are repeated."""
    for chunk in column.chunks:
        longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
        if longest > _TIME_BYTES_MAX:
            raise Corrupt("a history file has an overlong time", path=path)
    return column.cast(pa.string())
