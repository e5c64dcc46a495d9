"""An open table, before it reads or writes: where it is, what it is, and how an operation is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt.arguments import whole_number
from mdt.config import Options
from mdt.display import visible
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from mdt.commit.operation import Operation
    from mdt.commit.transaction import CommitResult


class Handle:
    """An open table; :class:`mdt.table.Table` is all that follows from it."""

    def __init__(self, storage: Storage, options: Mapping[str, Any] | None = None) -> None:
        self._storage = storage
        self._metadata = Metadata(storage, options)
        self._options: Options | None = None
        self._metadata.newest()

    @property
    def path(self) -> str:
        """Where the table is: local path or URL."""
        return self._storage.url

    @property
    def storage(self) -> Storage:
        """The storage below the table."""
        return self._storage

    @property
    def metadata(self) -> Metadata:
        """The metadata table."""
        return self._metadata

    @property
    def definition(self) -> TableDefinition:
        """What the table is; fixed at creation."""
        return self._metadata.newest(watched=False).definition

    @property
    def schema(self) -> pa.Schema:
        """The data columns as they were declared, without Hudi's meta columns."""
        return self.definition.declared

    @property
    def options(self) -> Options:
        """The options kept with the table, overridden by those it was opened with."""
        if self._options is None:
            self._options = self._metadata.options(self.definition)
        return self._options

    def snapshot(self, seq: int | None = None) -> Snapshot:
        """Return the newest snapshot, or the one after commit ``seq``.  Raises Invalid if there is no such commit."""
        return self._metadata.newest() if seq is None else self._metadata.at(whole_number("seq", seq))

    def __repr__(self) -> str:
        d = self.definition
        said = (d.name, d.table_type, f"key={','.join(d.key)}", f"at {self.path}")
        return f"<mdt table {' '.join(map(visible, said))}>"

    def _repr_html_(self) -> str:
        from mdt.services import overview

        return overview.table_html(self.path, self.snapshot())

    def _commit(self, operation: Operation[Any]) -> CommitResult[Any]:
        from mdt.commit.transaction import run

        return run(self._metadata, operation, attempts=self.options.commit_attempts)

    def _before_rows(self) -> None:
        """As :meth:`_before_write`; rows are found by the key index, so it must be there."""
        self._metadata.key_index(self._metadata.newest())
        self._before_write()

    def _before_write(self, *, roll_back: bool = True) -> None:
        """Refuse what cannot be written safely, then finish or remove what crashed writers left (with ``roll_back``)."""
        from mdt.commit.recovery import recover

        self._storage.require_conditional_put()
        self._metadata.newest()
        self._metadata.watch.refuse_to_write()
        if roll_back:
            recover(self._metadata, after_seconds=self.options.rollback_after_seconds or 1)
