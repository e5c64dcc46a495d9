"""What other formats derive from a commit: its change, and the table after it."""

from __future__ import annotations

from dataclasses import dataclass

from mdt.formats.data_files import Change
from mdt.hudi import timeline
from mdt.metadata.log.commit_log import CommitRecord
from mdt.schema.definition import TableDefinition

_MOVES = frozenset({"compact", "log_compact", "cluster", "repair"})
"""Operations that only move rows."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """A commit as other formats see it.

    Attributes:
        definition: The definition after the commit.
        is_first: True for the commit with which the format begins.
        horizon: The oldest commit after it that readers of the format can read.
    """

    record: CommitRecord
    definition: TableDefinition
    change: Change
    is_first: bool
    horizon: int

    @property
    def at_ms(self) -> int:
        """Time of the commit in milliseconds since 1970."""
        return timeline.instant_us(self.record.instant) // 1000

    @property
    def changes_rows(self) -> bool:
        """False if the commit only moves rows."""
        return self.record.header["operation"] not in _MOVES
