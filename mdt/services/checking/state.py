"""Shared state of checks and remedies: the checked state of a table, and the running repair."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags
from indexes.base import Int64Array
from mdt.commit.operation import Operation, P
from mdt.commit.transaction import CommitResult, run
from mdt.config import Options
from mdt.errors import Corrupt, Missing
from mdt.forking import cached_property
from mdt.hudi.avro_schema import with_meta
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.references import file_paths
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import read_columns
from mdt.schema.definition import TableDefinition
from mdt.services.checking.problems import Kind, Problem, kind_of
from mdt.services.layout.compaction import Compaction
from mdt.stores.storage import Storage


@dataclass(frozen=True)
class TableState:
    """A state of a table, with cached reads for the checks."""

    metadata: Metadata
    snapshot: Snapshot

    @property
    def storage(self) -> Storage:
        """The storage of the table."""
        return self.metadata.storage

    @property
    def definition(self) -> TableDefinition:
        """The definition of the table."""
        return self.snapshot.definition

    @property
    def options(self) -> Options:
        """The options of the table."""
        return self.metadata.options(self.definition)

    @cached_property
    def log(self) -> list[CommitRecord | Corrupt]:
        """Every record of the log, or its error if it cannot be read."""
        seqs = range(self.snapshot.retention.first, self.snapshot.seq + 1)
        return list(self.storage.each(partial(read_record, self.storage, seq) for seq in seqs))

    @property
    def records(self) -> list[CommitRecord]:
        """The readable records of the log."""
        return [record for record in self.log if isinstance(record, CommitRecord)]

    def read(self, segment: Segment, *columns: str) -> pa.Table:
        """Read ``columns`` of a data file, by default all, including meta columns."""
        schema = with_meta(self.definition.schema)
        if columns:
            schema = pa.schema(map(schema.field, columns))
        return read_columns(self.storage, self.definition, segment, schema)

    def files_of(self, problems: Iterable[Problem]) -> Int64Array:
        """Return the numbers of the live data files with problems (int64[n], distinct)."""
        live = self.snapshot.live_numbers
        listing = file_paths(self.snapshot.files.take(["partition", "name"], live))
        damaged = pa.array([problem.path for problem in problems], pa.string())
        return live[flags(pc.is_in(listing, damaged))]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live file that was read.

    Attributes:
        number: Number in the snapshot.
        data: Bytes of the file.
        table: All rows.
        record: Commit record, or None if it has left the log.
    """

    state: TableState
    number: int
    segment: Segment
    data: bytes
    table: pa.Table
    record: CommitRecord | None


def read_record(storage: Storage, seq: int) -> CommitRecord | Corrupt:
    """Return a record of the log, or the error if it cannot be read."""
    try:
        record = commit_log.read(storage, seq)
    except Corrupt as error:
        return error
    return record or Missing("the commit record is missing", path=paths.commit(seq))


@dataclass(slots=True)
class Repair:
    """A running repair of a table.

    Attributes:
        damaged, rebuilt, lost: See :class:`mdt.services.checking.problems.RepairReport`.
        rewritten: File groups that were rewritten. Each is rewritten once.
        is_keyed: True if the whole key index was rebuilt, which is done once.
    """

    metadata: Metadata
    damaged: list[Problem] = field(default_factory=list)
    rebuilt: list[Problem] = field(default_factory=list)
    lost: list[Problem] = field(default_factory=list)
    rewritten: set[str] = field(default_factory=set)
    is_keyed: bool = False

    @property
    def storage(self) -> Storage:
        """The storage of the table."""
        return self.metadata.storage

    def state(self) -> TableState:
        """Return the newest state."""
        return TableState(self.metadata, self.metadata.newest(watched=False))

    def begin_again(self) -> Metadata:
        """Replace the metadata by new ones, without caches that may be damaged."""
        self.metadata = Metadata(self.storage, self.metadata.overrides)
        return self.metadata

    def commit(self, operation: Operation[P]) -> CommitResult[P]:
        """Run a transaction."""
        return run(self.metadata, operation, attempts=self.state().options.commit_attempts)

    def note(self, path: str, text: str, kind: Kind | None = None) -> None:
        """Record a rebuilt object."""
        self.rebuilt.append(Problem(path, text, kind or kind_of(path)))

    def lose(self, path: str, text: str) -> None:
        """Record a loss."""
        self.lost.append(Problem(path, text, kind_of(path)))

    def rewrite(self, groups: Iterable[str]) -> None:
        """Rewrite file groups, each once.

        Rows are verified. A group with unreadable rows stays unchanged.
        """
        for name in sorted(set(groups) - self.rewritten):
            self.rewritten.add(name)
            operation = Compaction(
                self.metadata, self.state().options, names=(name,), everything=True, name="repair"
            )
            with suppress(Corrupt):
                record = self.commit(operation).record
                if record is not None:
                    text = f"file group {name} rewritten"
                    self.note(paths.commit(record.seq), text, Kind.DERIVED)
