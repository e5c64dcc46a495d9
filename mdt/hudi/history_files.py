"""Writing the history of tables of versions 8 and 9, into which old instants are moved.

``_version_`` has the number of the newest manifest, and ``manifest_<N>`` the names and sizes of the
valid files (JSON). A file ``<first>_<last>_<layer>.parquet`` has the instants between two times.
New files have layer 0. When ten files have the same layer, they are merged into one of the next.
:mod:`mdt.hudi.read.history` reads the history. Sources: Apache Hudi, ``LSMTimeline.java``,
``HoodieLSMTimelineInstant.avsc``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mdt.errors import Corrupt
from mdt.hudi.avro import NAMESPACE, field, optional, record
from mdt.hudi.read.history import MANIFEST, VERSION, manifest_files, parse_file
from mdt.hudi.read.parquet_rows import DAMAGE
from mdt.hudi.timeline import Archive, InstantContent
from mdt.limits import HISTORY_BYTES_MAX

FILES_MERGED = 10
"""Number of files of a layer that are merged, Hudi's default."""
_MERGED_BYTES_MAX = HISTORY_BYTES_MAX // 2
"""Bytes of the rows that are merged, so that the merged file can be read, too."""
_FILE_BYTES_MAX = 6 << 20
"""Size of a file up to which it is merged. Its rows have about eight times as many bytes."""
MANIFESTS_KEPT = 3
"""Number of older manifests that are kept with their files, for readers that use them."""

_ROW = record(
    "HoodieLSMTimelineInstant",
    optional("instantTime", "string"),
    optional("completionTime", "string"),
    optional("action", "string"),
    optional("metadata", "bytes"),
    optional("plan", "bytes"),
    {**field("version", "int"), "default": 1},
    namespace=NAMESPACE,
)
_ROWS = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ],
    {"parquet.avro.schema": json.dumps(_ROW, separators=(",", ":")), "writer.model.name": "avro"},
)

Read = Callable[[str], bytes]


def add(
    folder: str, existing: Sequence[str], read: Read, instants: Sequence[InstantContent]
) -> Archive:
    """Return the objects that add ``instants`` to the history in ``folder``.

    Instants that a writer had added before it died are not added again. Arguments as in
    :meth:`mdt.hudi.v6.Version6.archived`.
    """
    manifests = _manifests(existing)
    files: dict[str, int] = {}
    if manifests:
        path = f"{folder}/manifest_{manifests[-1]}"
        files = manifest_files(read(path), path)
    written: dict[str, bytes] = {}
    rows = _rows(_without_archived(folder, files, read, instants))
    if len(rows):
        name = _name(rows, 0)
        written[name] = _encode(rows)
        files[name] = len(written[name])
        _merge_layers(folder, files, read, written)
    number = manifests[-1] + 1 if manifests else 1
    outdated = _outdated(folder, manifests, files, read)
    return Archive(
        [(f"{folder}/{name}", written[name]) for name in written if name in files],
        (f"{folder}/manifest_{number}", _manifest(files)),
        outdated,
    )


def pointer(folder: str, existing: Sequence[str]) -> tuple[str, bytes] | None:
    """Return (path, content) of the object with the number of the newest manifest, None without
    manifests.

    >>> pointer("history", ["history/manifest_1", "history/manifest_12"])
    ('history/_version_', b'12')
    """
    manifests = _manifests(existing)
    return (f"{folder}/{VERSION}", str(manifests[-1]).encode()) if manifests else None


def _manifests(paths: Sequence[str]) -> list[int]:
    """Return the numbers of the manifests, ascending."""
    names = (path.rpartition("/")[2] for path in paths)
    return sorted(int(match[1]) for match in map(MANIFEST.fullmatch, names) if match)


def _without_archived(
    folder: str, files: Mapping[str, int], read: Read, instants: Sequence[InstantContent]
) -> list[InstantContent]:
    """Return the instants that are not in the history yet."""
    times = [entry.instant.time for entry in instants]
    archived = set[tuple[str, str]]()
    for name in files:
        first, last, _ = parse_file(name)
        if times and first <= max(times) and min(times) <= last:
            rows = _decode(read(f"{folder}/{name}"), f"{folder}/{name}")
            archived.update(
                zip(rows["instantTime"].to_pylist(), rows["action"].to_pylist(), strict=True)
            )
    return [e for e in instants if (e.instant.time, e.instant.action) not in archived]


def _rows(instants: Sequence[InstantContent]) -> pa.Table:
    rows = [
        (e.instant.time, e.instant.completion, e.instant.action, e.body, e.plan, 1)
        for e in instants
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(_ROWS)
    return pa.table(list(map(list, columns)), schema=_ROWS)


def _merge_layers(
    folder: str, files: dict[str, int], read: Read, written: dict[str, bytes]
) -> None:
    """Merge the oldest files of a layer into one of the next layer while there are too many."""
    layers: dict[int, list[str]] = defaultdict(list)
    for name in sorted(files):
        if files[name] <= _FILE_BYTES_MAX:
            layers[parse_file(name)[2]].append(name)
    layer = 0
    while len(layers[layer]) >= FILES_MERGED:
        oldest = layers[layer][:FILES_MERGED]
        parts, size = list[pa.Table](), 0
        for name in oldest:
            data = written[name] if name in written else read(f"{folder}/{name}")
            parts.append(_decode(data, f"{folder}/{name}"))
            size += parts[-1].nbytes
            if size > _MERGED_BYTES_MAX:
                return
        rows = pa.concat_tables(parts).sort_by([("instantTime", "ascending")])
        name = _name(rows, layer + 1)
        written[name] = _encode(rows)
        for merged in oldest:
            del files[merged]
        files[name] = len(written[name])
        layers[layer] = layers[layer][FILES_MERGED:]
        if files[name] <= _FILE_BYTES_MAX:
            layers[layer + 1] = sorted([*layers[layer + 1], name])
        layer += 1


def _outdated(
    folder: str, manifests: Sequence[int], files: Mapping[str, int], read: Read
) -> list[str]:
    """Return the paths of old manifests, and of the files that only they name."""
    old = manifests[: max(0, len(manifests) - MANIFESTS_KEPT)]
    if not old:
        return []
    used = set(files)
    for number in manifests[len(old) :]:
        path = f"{folder}/manifest_{number}"
        used.update(manifest_files(read(path), path))
    outdated = set()
    for number in old:
        path = f"{folder}/manifest_{number}"
        outdated.update(set(manifest_files(read(path), path)) - used)
    # the files first: a manifest that is left can be removed by the next writer
    return [
        *(f"{folder}/{name}" for name in sorted(outdated)),
        *(f"{folder}/manifest_{number}" for number in old),
    ]


def _name(rows: pa.Table, layer: int) -> str:
    bounds = pc.min_max(rows["instantTime"]).as_py()
    return f"{bounds['min']}_{bounds['max']}_{layer}.parquet"


def _manifest(files: Mapping[str, int]) -> bytes:
    entries = [{"fileName": name, "fileLen": files[name]} for name in sorted(files)]
    return json.dumps({"files": entries}, indent=2).encode()


def _encode(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, compression="gzip", store_schema=False)
    return out.getvalue().to_pybytes()


def _decode(data: bytes, path: str) -> pa.Table:
    """Return the rows of a file of any writer. Raises Corrupt for damaged bytes."""
    try:
        parquet = pq.ParquetFile(pa.BufferReader(data))
        size = sum(
            parquet.metadata.row_group(n).total_byte_size for n in range(parquet.num_row_groups)
        )
        if size > HISTORY_BYTES_MAX:
            raise Corrupt(f"a history file with {size} bytes of rows is too large", path=path)
        rows = parquet.read(_ROWS.names, use_threads=False)
        times = rows["instantTime"]
        if times.null_count or not len(rows):
            raise Corrupt("a history file has no instants, or some without time", path=path)
        return rows.cast(_ROWS)
    except DAMAGE as error:
        raise Corrupt(f"a history file cannot be read: {str(error)[:200]}", path=path) from error
