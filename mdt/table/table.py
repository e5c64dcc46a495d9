"""A table as users have it in hand; how they create and open one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdt import late
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.config import canonical, declaration
from mdt.errors import Invalid
from mdt.metadata import key_indexes
from mdt.progress import ProgressOption, shown
from mdt.schema.input import to_schema
from mdt.stores.storage import open_storage
from mdt.table.indexes import Indexes
from mdt.table.reading import Reading
from mdt.table.services import Services
from mdt.table.writing import Writing

if TYPE_CHECKING:
    from mdt.metadata.snapshot.as_of import Point
    from mdt.services.checking.problems import RepairReport
    from mdt.stores.storage import Storage


class Table(Reading, Writing, Services, Indexes):
    """A table at a path or URL.  Make one with :func:`mdt.create` or :func:`mdt.open`; safe to use
    from threads.

    A pickle is where the table is, and the options that it was opened with: who loads it (a worker
    process, a Spark task) opens the table anew, at its newest commit, with the credentials of its
    own environment.  Secrets are never in it.
    """

    def __reduce__(self) -> Any:
        """Raises Unsupported for a table in memory."""
        seen = None if self._pinned is None else self._pinned.seq
        return _reopened, (
            self._storage,
            dict(self._metadata.overrides),
            seen,
            self._rests_on,
            self._batch,
        )


def _reopened(
    storage: Storage,
    options: Mapping[str, Any],
    as_of: int | None,
    rests_on: int | None,
    batch: tuple[str, int | str] | None,
) -> Table:
    """Return a table as it was pickled."""
    found = open(storage, options, as_of=as_of)
    if rests_on is not None:
        found = found.resting_on(rests_on)
    return found if batch is None else found.once(*batch)


@takes_metadata
def create(
    path: Any,
    schema: Any,
    key: Sequence[str],
    *,
    partition_by: Sequence[str] = (),
    ordering: str | None = None,
    table_type: str = "MERGE_ON_READ",
    key_index: str | None = None,
    scope: str | None = None,
    indexes: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, object] | None = None,
    metadata: CommitMetadata = None,
) -> Table:
    """Create a table and return it.

    ``path``, ``storage_options``: as for :func:`open`; no table is there yet.  ``schema``: data
    columns, of pyarrow, polars, Spark (``df.schema``) or anything with ``__arrow_c_schema__``;
    types that cannot come back are refused; metadata of fields is kept, that of the schema is not.
    ``key``: record key columns.  ``partition_by``: partition columns (hive style directories).
    ``ordering``: column whose larger value wins when a key is written twice.  ``table_type``:
    MERGE_ON_READ or COPY_ON_WRITE.  ``key_index``: how keys are found, "bloom" (default), "record",
    "simple", "bucket(buckets='8')", "memory", "lmdb" or one of a package. ``scope``: a key is
    unique per "partition" (default) or per "table".  Hudi's ``hoodie.index.type`` among the options
    says both. ``indexes``: skipping indexes such as ``"bitmap(status)"``.  ``options``: see
    :mod:`mdt.config`; those of the scopes session and machine hold for the returned object and are
    not kept with the table.  ``metadata``: as for :meth:`Table.upsert`.

    Raises Invalid if the arguments do not fit together or a table exists, Unsupported for storage
    without conditional put.
    """
    storage = late.create_table.place(path, options, storage_options)
    definition = late.create_table.define(
        storage,
        to_schema(late.choice.arrow_schema(schema)),
        key=key,
        partition_by=partition_by,
        ordering=ordering,
        table_type=table_type,
        key_index=key_index,
        scope=scope,
        indexes=indexes,
        options=options,
    )
    late.create_table.create(storage, definition)
    not_kept = {
        name: text
        for name, text in canonical(options).items()
        if declaration(name).scope != "table"
    }
    return Table(storage, not_kept)


def open(
    path: Any,
    options: Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    as_of: Point | None = None,
) -> Table:
    """Open the table at ``path``; ``options`` hold for this object, in place of those that the
    table keeps.

    ``path``: local path, URL (``s3://bucket/table``, ``gs://…``, ``az://…``), or an obstore store
    whose root is the table. ``storage_options``: endpoint, region, credentials and the like, by the
    names that object_store, deltalake and polars take; what is not given comes from the
    environment. ``as_of``: show a past state (:meth:`Table.snapshot`), which cannot be written to;
    for ever the same one.

    Raises Invalid if there is no table, Unsupported if it was written by a newer version or another
    Hudi writer has committed to it, Corrupt if it is damaged, Unavailable if the storage cannot be
    reached or lacks credentials.
    """
    storage = open_storage(path, storage_options=storage_options)
    table = Table(storage, options, as_of=as_of)
    if storage is not path:
        storage.is_durable = table.options.durable
    definition = table.definition
    key_indexes.check(table.options, definition.key_index, definition.scope)
    stored = definition.parsed.to_mapping("table")
    for name, text in canonical(options).items():
        if declaration(name).fixed and name not in key_indexes.OPTIONS and text != stored[name]:
            raise Invalid(
                f"{name} is fixed at creation; this table has {stored[name]!r}",
                hint="leave the option out",
            )
    return table


def repair(
    path: Any,
    options: Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: ProgressOption = None,
) -> RepairReport:
    """Mend the table at ``path`` as :meth:`Table.repair` does, also one that cannot be opened.

    What keeps it from being opened is mended first: properties and the hint.  If that does not
    help, the report says what is lost; nothing is deleted. ``options``, ``storage_options``: as for
    :func:`open`.  Raises Invalid if there is no table, Unsupported if another writer has taken it
    over.
    """
    storage = open_storage(path, storage_options=storage_options)
    with shown(progress, "repair") as told:
        return late.repair_service.repair(late.metadata_table.Metadata(storage, options), told)
