"""A text summary of a table from its metadata: commits, files, readable states, and due services.

The text is for terminals, without colours. Names are escaped (:func:`mdt.display.visible`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array
from mdt.config import Options
from mdt.display import size_text, visible
from mdt.limits import CLEAN_COMMITS_MIN
from mdt.metadata.files.file_group import LOG
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.indexing.index_report import index_table
from mdt.services.layout.compaction_strategies import dirty
from mdt.services.layout.curves import SORT
from mdt.services.layout.small_files import JoinGroups

COMMITS_SHOWN = 60
_BAR_CHARACTERS = 30
_SIZE_FACTOR = 4
"""Ratio of consecutive size bounds in the histogram of file groups."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Facts about a table.

    Attributes:
        commits: The newest commits, oldest first (``mdt.Table.history``).
        horizon: Seq of the oldest readable state.
        tags: Name -> seq.
        group_sizes: Upper bound in bytes -> number of file groups between a quarter of the bound
            and the bound.
        bytes, log_bytes: Size of all files, and of log files.
        rows, dead: Live rows, and deleted rows still in files.
        indexes: Index -> share of the rows covered.
        due: Descriptions of due work of services.
    """

    name: str
    seq: int
    instant: str
    commits: pa.Table
    horizon: int
    tags: Mapping[str, int]
    files: int
    log_files: int
    groups: int
    group_sizes: Mapping[int, int]
    bytes: int
    log_bytes: int
    rows: int
    dead: int
    indexes: Mapping[str, float]
    due: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the lines for a terminal."""
        yield f"{visible(self.name)}: commit {self.seq:,} at {self.instant}"
        yield ""
        yield from self._timeline()
        yield f"readable: states {self.horizon:,} to {self.seq:,}; tags: {self._tags()}"
        yield ""
        yield f"file groups: {self.groups:,}, with {self.files:,} files, {size_text(self.bytes)}"
        widest = max(self.group_sizes.values(), default=1)
        for size, count in self.group_sizes.items():
            bar = "█" * max(1, round(_BAR_CHARACTERS * count / widest))
            yield f"  below {size_text(size):>9}  {bar} {count:,}"
        yield f"log files: {self.log_files:,}, {_percent(self.log_bytes, self.bytes)} of the bytes"
        yield (
            f"rows: {self.rows:,} live, {self.dead:,} deleted,"
            f" {_percent(self.dead, self.rows + self.dead)} of the rows in files"
        )
        indexes = (f"{visible(name)} {covered:.0%}" for name, covered in self.indexes.items())
        yield f"indexes: {', '.join(indexes) or '-'}"
        yield f"due: {'; '.join(map(visible, self.due)) or 'nothing'}"

    def _timeline(self) -> Iterator[str]:
        """Yield a line per operation, with a character per commit."""
        operations = self.commits["operation"].to_pylist()
        names = list(dict.fromkeys(operations))
        width = max(map(len, map(visible, names)), default=0)
        for name in names:
            marks = "".join("■" if operation == name else "·" for operation in operations)
            yield f"  {visible(name):>{width}}  {marks} {operations.count(name):,}"
        if operations:
            first, last = self.commits["seq"][0], self.commits["seq"][-1]
            yield f"  {'':>{width}}  commits {first} to {last}"

    def _tags(self) -> str:
        return (
            ", ".join(f"{visible(name)} (commit {seq:,})" for name, seq in self.tags.items()) or "-"
        )


def summary(
    metadata: Metadata, snapshot: Snapshot, options: Options, commits: int = COMMITS_SHOWN
) -> Summary:
    """Return the summary of a table at ``snapshot`` with its newest ``commits``. O(files)."""
    history = metadata.history().slice(0, snapshot.seq + 1)
    files = snapshot.live_numbers
    size, is_log = snapshot.files.numpy("size")[files], snapshot.kind[files] == LOG
    groups, group = np.unique(snapshot.file_groups.of_files(files), return_inverse=True)
    group_bytes = np.bincount(group, size, len(groups)).astype(np.int64)
    indexes = index_table(metadata, snapshot)
    covered = dict(
        zip(
            indexes["index"].to_pylist(),
            (indexes["coverage"].to_numpy() / 100).tolist(),
            strict=True,
        )
    )
    dead = int(snapshot.dead_rows[files].sum())
    return Summary(
        name=snapshot.definition.name,
        seq=snapshot.seq,
        instant=snapshot.last_instant,
        commits=history.slice(max(0, len(history) - commits)).select(
            ["seq", "instant", "action", "operation", "inserted", "updated", "deleted"]
        ),
        horizon=snapshot.retention.horizon,
        tags=dict(snapshot.tags.seqs),
        files=len(files),
        log_files=int(is_log.sum()),
        groups=len(groups),
        group_sizes=_sizes(group_bytes),
        bytes=int(size.sum()),
        log_bytes=int(size[is_log].sum()),
        rows=int(snapshot.rows[files].sum()) - dead,
        dead=dead,
        indexes=covered,
        due=tuple(due(metadata, snapshot, options, covered)),
    )


def due(
    metadata: Metadata, snapshot: Snapshot, options: Options, covered: Mapping[str, float]
) -> Iterator[str]:
    """Yield descriptions of the due work of services. Changes nothing.

    ``covered`` maps each index to the share of the rows it covers.
    """
    candidates = dirty(snapshot)
    many = (
        int((candidates.log_files >= options.compact_log_files).sum())
        if snapshot.definition.is_mor
        else 0
    )
    if many:
        yield (
            f"compaction of {many:,} file groups with {options.compact_log_files} or more log files"
        )
    if options.small_file_bytes:
        units = (
            JoinGroups(metadata, options, snapshot.definition.key, SORT).prepare(snapshot, "").units
        )
        if units:
            yield f"joining of {sum(len(unit.groups) for unit in units):,} small file groups"
    retained = options.clean_retain_commits
    over = snapshot.seq - snapshot.retention.horizon - retained
    if options.clean_policy == "KEEP_LATEST_COMMITS" and over >= max(
        CLEAN_COMMITS_MIN, retained // 4
    ):
        yield f"cleaning of {over:,} states"
    for name, share in covered.items():
        if share < 1:
            yield f"build of {name}"


def _sizes(group_bytes: Int64Array) -> dict[int, int]:
    """Return a histogram: upper bound in bytes -> number of sizes below it and below no smaller
    bound.
    """
    bounds, size = [1024], int(group_bytes.max(initial=0))
    while bounds[-1] <= size:
        bounds.append(bounds[-1] * _SIZE_FACTOR)
    counts = np.bincount(
        np.searchsorted(bounds, group_bytes, side="right"), minlength=len(bounds)
    ).tolist()
    return {bound: count for bound, count in zip(bounds, counts, strict=True) if count}


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"
