"""``python -m benchmarks versions``: what a version of Delta or Iceberg costs after many commits, and
how fast its readers open the table.

Tables have files that do not exist. Each commit deletes rows in some of them at random, and is a
commit record alone; what is derived from it is real. A cleaning retains the newest commits. The
figures are those of the last commits, checkpoints included. delta-rs and pyiceberg open the table,
and one that they have written themselves.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

import mdt
from benchmarks import planning
from benchmarks.trips import WrongAnswer
from mdt.formats import keeping
from mdt.formats.delta import places
from mdt.metadata.files.deletion_vectors import serialize
from mdt.metadata.log.commit_log import VECTORS, CommitRecord
from mdt.stores.storage import Data, LocalStorage

FILES_DEFAULT = (1_000, 100_000)
TOUCHED = 50
"""Files in which a commit deletes rows."""
DELETED = 20
"""Rows that it deletes in each of them."""
RETAINED = 1_000
"""Commits that a cleaning retains, and of which the figures are."""
CLEANED_EVERY = 100
TAIL = 50
"""Commits after the last checkpoint of Delta when readers open the table."""
_STRIDE = 7_919
"""Coprime with the rows of a file, so that deleted rows are scattered and never repeat."""
_OPTIONS = {"mdt.services.auto": False, "mdt.formats.retain.hours": 0, "mdt.durable": False}
_OPEN_ICEBERG = """
import time, json; a = b = time.perf_counter()
import pyiceberg.io.pyarrow; from pyiceberg.table import StaticTable; c = time.perf_counter()
found = [task.file.file_path for task in StaticTable.from_metadata(PATH).scan(row_filter=WHERE).plan_files()]
d = time.perf_counter()
"""


class Counted(LocalStorage):
    """Counts the objects that are put, and their bytes."""

    puts = put_bytes = 0

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        self.puts += 1
        self.put_bytes += len(data)
        return super().put_if_absent(path, data)

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        self.puts += 1
        self.put_bytes += len(data)
        super().replace(path, data)


def run(counts: Iterable[int], commits: int, times: int, emit: Callable[[str], object]) -> None:
    """Measure both formats; ``emit`` takes lines of JSON.

    counts: Numbers of files.
    times: Openings by readers, of which the median is shown.

    Raises WrongAnswer if a reader plans other files.
    """
    for files in counts:
        for name in ("delta", "iceberg"):
            with tempfile.TemporaryDirectory() as folder:
                for figure in _figures(folder, name, files, commits, times):
                    emit(json.dumps({"bench": "versions", "files": files, **figure}))


def _figures(
    folder: str, name: str, files: int, commits: int, times: int
) -> Iterator[dict[str, Any]]:
    storage = Counted(f"{folder}/t", durable=False)
    settings = {"key_index": "record", "formats": ["hudi", name], "options": _OPTIONS}
    mdt.create(storage, planning.SCHEMA, ["id"], **settings)
    loads = planning.append_files(storage, files)
    table = mdt.open(storage, {"mdt.durable": False})
    for seq in range(1, loads + 1):
        record = table.metadata.record(seq)
        assert record is not None
        _keep(table, record)
    laps = list(_laps(table, storage, range(loads + 1, loads + commits + 1)))
    summary = _summary(laps[-RETAINED:])
    yield {"kind": "version", "what": name, "commits": commits, **summary}
    where = f"at = {files // 3 * planning.ROWS + 5}"
    if name == "delta":
        first = loads + commits - (loads + commits) % places.CHECKPOINT_COMMITS
        seqs = range(loads + commits + 1, first + places.CHECKPOINT_COMMITS + TAIL + 1)
        list(_laps(table, storage, seqs))
        own = _own_delta(Path(folder), table.snapshot().seq)
        opened = (("delta-rs", f"{folder}/t"), ("delta-rs, its own log", own))
        code, limit = planning.COLD_DELTA, None
    else:
        seq = table.snapshot().seq
        code, limit = _OPEN_ICEBERG, planning.ICEBERG_FILES_MAX
        opened = (("pyiceberg", f"{folder}/t/metadata/v{seq}.metadata.json"),)
        if files <= limit:
            made = planning.make_iceberg(f"{folder}/own", files)
            opened += (("pyiceberg, its own table", made.metadata_location),)
    for peer, path in opened:
        line = planning.cold(peer, code, path, files, where, times)
        if line.files_found != 1:
            raise WrongAnswer(f"{peer} plans {line.files_found} files and not 1")
        yield {"kind": "opening", "what": peer, "ms": round(line.ms, 1)}


def _keep(table: mdt.Table, record: CommitRecord) -> float:
    """Put the version of a commit, and return the CPU milliseconds."""
    metadata = table.metadata
    newest = metadata.after(record)
    start = time.process_time()
    keeping.keep(metadata, record, newest)
    return 1e3 * (time.process_time() - start)


Lap = tuple[float, int, int]
"""CPU milliseconds, puts, and bytes of the version of a commit."""


def _laps(table: mdt.Table, storage: Counted, seqs: range) -> Iterator[Lap]:
    """Commit deletions until commit ``seqs.stop``, and yield what their versions cost."""
    draw = np.random.default_rng([7, seqs.start])
    while True:
        snapshot = table.metadata.newest(watched=False)
        seq = snapshot.seq + 1
        if seq >= seqs.stop:
            return
        segments = np.sort(draw.choice(snapshot.segment_ids, TOUCHED, replace=False))
        numbers = np.searchsorted(snapshot.segment_ids, segments)
        dead = snapshot.dead_rows[numbers].tolist()
        vectors = [_positions(count) for count in dead]
        positions = [serialize(BitMap(vector)) for vector in vectors]
        tables = {"vectors": pa.table([segments, positions], schema=VECTORS)}
        record = planning.append(storage, seq, planning.instant_of(storage, seq), tables)
        puts, size = storage.puts, storage.put_bytes
        cpu = _keep(table, record)
        yield cpu, storage.puts - puts, storage.put_bytes - size
        if not seq % CLEANED_EVERY:
            table.metadata.compact()
            table.clean(retain_commits=RETAINED)


def _positions(first: int) -> np.ndarray[Any, Any]:
    """Return the positions of the next deleted rows of a file with ``first`` deleted rows."""
    return np.arange(first, first + DELETED) * _STRIDE % planning.ROWS


def _summary(laps: list[Lap]) -> dict[str, float]:
    """Return the mean and the 99th percentile of each figure."""
    found = {}
    for name, values in zip(("cpu_ms", "puts", "kB"), zip(*laps, strict=True), strict=True):
        numbers = np.array(values) / (1e3 if name == "kB" else 1)
        found[name] = round(float(numbers.mean()), 2)
        found[f"{name}_p99"] = round(float(np.percentile(numbers, 99)), 2)
    return found


def _own_delta(folder: Path, newest: int) -> str:
    """Return a table of the same files with a log whose checkpoint delta-rs has written."""
    from deltalake import DeltaTable

    ours, own = folder / "t" / "_delta_log", folder / "own"
    (own / "_delta_log").mkdir(parents=True)
    first = newest - newest % places.CHECKPOINT_COMMITS
    rows = pq.read_table(ours / f"{first:020d}.checkpoint.parquet").to_pylist()
    lines = []
    for row in rows:
        [(kind, action)] = [(kind, action) for kind, action in row.items() if action]
        for key in ("partitionValues", "configuration"):
            if key in action:
                action[key] = dict(action[key])
        if kind == "metaData":
            action["format"]["options"] = {}
        if kind == "protocol":
            action["writerFeatures"].remove("mdt-derived")
        given = {key: value for key, value in action.items() if value is not None}
        lines.append(json.dumps({kind: given}))
    version = own / "_delta_log" / f"{0:020d}.json"
    version.write_text("\n".join(lines))
    DeltaTable(str(own)).create_checkpoint()
    for seq in range(first + 1, newest + 1):
        target = own / "_delta_log" / f"{seq - first:020d}.json"
        target.write_bytes((ours / f"{seq:020d}.json").read_bytes())
    return str(own)
