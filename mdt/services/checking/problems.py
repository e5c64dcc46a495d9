"""Problems found by a check, and reports of checks and repairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mdt.display import html_facts, html_table
from mdt.errors import MdtError
from mdt.hudi.read.metadata_state import FOLDER as METADATA_TABLE
from mdt.metadata.files import paths


class Kind(StrEnum):
    """Kinds of problems. :data:`mdt.services.checking.repair.REMEDIES` has the remedies."""

    TABLE = "table"
    """Parts of the table contradict each other."""
    RECORD = "commit record"
    CHECKPOINT = "checkpoint"
    """A checkpoint, or the hint to the newest one."""
    ARCHIVE = "archive"
    TIMELINE = "timeline"
    """Hudi's instants, properties and partition markers."""
    LISTING = "Hudi's metadata table"
    """Hudi's metadata table that our commits keep."""
    FORMAT = "other format"
    """Metadata of the table's other formats."""
    ROWS = "rows"
    """A damaged data file."""
    ATTACHMENT = "attachment"
    """Damaged bytes of a key map, page map, summary or key part."""
    DERIVED = "derived"
    """Readable metadata of a data file that do not match the file."""
    SUMMARY = "summary"
    """A readable summary of a skipping index that does not match the rows."""
    KEY_INDEX = "key index"
    LEFT_OVER = "left over"
    CLAIM = "claim"
    PLACEMENT = "placement"
    """A warning. Readers are not affected."""


_KINDS = {
    paths.LOG_DIR: Kind.RECORD,
    paths.CHECKPOINTS_DIR: Kind.CHECKPOINT,
    paths.HINT: Kind.CHECKPOINT,
    paths.ARCHIVE_DIR: Kind.ARCHIVE,
    paths.ATTACHMENTS_DIR: Kind.ATTACHMENT,
    paths.PENDING_DIR: Kind.CLAIM,
    METADATA_TABLE: Kind.LISTING,
    paths.HUDI: Kind.TIMELINE,
    "": Kind.TABLE,
}
"""Kinds of objects by path or directory. The innermost directory counts."""


def kind_of(path: str) -> Kind:
    """Return the kind of a problem with the object at ``path``.

    >>> str(kind_of(paths.commit(3))), str(kind_of("city=x/a.parquet")), str(kind_of(""))
    ('commit record', 'rows', 'table')
    """
    place = path
    while place not in _KINDS:
        place = place.rpartition("/")[0]
        if not place:
            return Kind.ROWS
    return _KINDS[place]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of an object.

    Attributes:
        path: Path of the object.
        text: Description.
        kind: Kind of the problem.
        offset: Byte offset, or -1 for the whole object.
    """

    path: str
    text: str
    kind: Kind = Kind.TABLE
    offset: int = -1

    @classmethod
    def from_error(cls, error: MdtError, path: str = "", kind: Kind | None = None) -> Problem:
        """Return the problem that an error describes.

        ``path`` is used if the error names none. ``kind`` is by default the kind of the object.
        """
        path = getattr(error, "path", "") or path
        return cls(path, str(error), kind or kind_of(path), getattr(error, "offset", -1))

    def __str__(self) -> str:
        where = self.path
        if self.offset >= 0:
            where += f" at byte {self.offset}"
        return f"{where}: {self.text}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check.

    Attributes:
        problems: Problems found.
        files: Number of live files.
        rows: Number of live rows.
        bytes: Size of the live files.
        records: Commits since the table was created.
        warnings: Observations that affect no reader, neither of mdt nor of Hudi.

    >>> t.check().ok
    True
    """

    problems: tuple[Problem, ...]
    files: int
    rows: int
    bytes: int
    records: int
    warnings: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """True if there are no problems."""
        return not self.problems

    def __repr__(self) -> str:
        count = _count(self.problems, "no")
        return f"<mdt check of {self.files:,} files, {self.rows:,} live rows: {count} problems>"

    def __str__(self) -> str:
        head = f"{self.files} files, {self.rows:,} live rows, {self.bytes:,} bytes, {self.records}"
        lines = [f"{head} commit records: {_count(self.problems, 'no')} problems"]
        lines += [f"  {problem}" for problem in self.problems]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = {
            "files": f"{self.files:,}",
            "live rows": f"{self.rows:,}",
            "bytes": f"{self.bytes:,}",
            "commit records": f"{self.records:,}",
            "problems": _count(self.problems, "none"),
        }
        return html_facts("mdt check", facts) + _tables({"problems": self.problems})


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair.

    Attributes:
        damaged: Problems found.
        rebuilt: Repaired objects.
        lost: Problems that remain, or that cost data.

    >>> print(t.repair())
    nothing is damaged
    """

    damaged: tuple[Problem, ...]
    rebuilt: tuple[Problem, ...]
    lost: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """True if nothing is lost or still damaged."""
        return not self.lost

    def _parts(self) -> dict[str, Sequence[Problem]]:
        return {"damaged": self.damaged, "rebuilt": self.rebuilt, "lost": self.lost}

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(part):,} {title}" for title, part in self._parts().items())
        return f"<mdt repair: {counts}>"

    def __str__(self) -> str:
        if not (self.damaged or self.rebuilt or self.lost):
            return "nothing is damaged"
        lines = []
        for title, part in self._parts().items():
            lines.append(f"{title}: {_count(part, 'nothing')}")
            lines += [f"  {problem.kind}: {problem}" for problem in part]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = {title: _count(part, "nothing") for title, part in self._parts().items()}
        return html_facts("mdt repair", facts) + _tables(self._parts())


def _count(problems: Sequence[Problem], none: str) -> str:
    return f"{len(problems):,}" if problems else none


def _tables(parts: Mapping[str, Sequence[Problem]]) -> str:
    tables = ""
    for title, part in parts.items():
        if part:
            rows = ((p.kind, p.path, "" if p.offset < 0 else p.offset, p.text) for p in part)
            tables += html_table(title, ("kind", "object", "byte", "problem"), rows)
    return tables
