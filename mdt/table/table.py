"""The table class that users see, and functions to create, open and repair a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdt import late, logs
from mdt.arguments import flag, one_text
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.config import ALTERABLE, FORMATS_OPTION, OPTIONS, canonical, parse_options
from mdt.errors import Corrupt, Invalid, MdtError
from mdt.metadata import key_indexes
from mdt.metadata.history.other_tables import require_same
from mdt.progress import ProgressOption, progress_callback
from mdt.schema.input import to_schema
from mdt.stores.storage import open_storage
from mdt.table.indexes import Indexes
from mdt.table.reading import Reading
from mdt.table.services import Services
from mdt.table.writing import Writing

if TYPE_CHECKING:
    from mdt.catalogs.entry import Catalog
    from mdt.metadata.snapshot.as_of import Point
    from mdt.schema.definition import TableDefinition
    from mdt.services.adoption.adopting import AdoptionPlan
    from mdt.services.checking.problems import RepairReport
    from mdt.stores.storage import Storage


class Table(Reading, Writing, Services, Indexes):
    """A Hudi table at a path or URL, made by :func:`mdt.create` or :func:`mdt.open`. Thread-safe.

    A pickle contains the location of the table and the options it was opened with, but no secrets.
    Unpickling, e.g. in a worker process or a Spark task, opens the table at its newest commit with
    the credentials of its own environment.

    >>> t
    <mdt table trips MERGE_ON_READ key=id at ...>
    >>> t.scan("fare > 5", columns=["id"]).count()
    2
    """

    def __reduce__(self) -> Any:
        """Raises Unsupported for a table in memory."""
        pinned = self._pinned
        return _reopened, (
            self._storage,
            dict(self._metadata.overrides),
            None if pinned is None else (pinned.seq, pinned.last_instant),
            self._rests_on,
            self._batch,
        )


def _reopened(
    storage: Storage,
    options: Mapping[str, Any],
    pinned: tuple[int, str] | None,
    rests_on: tuple[int, str] | None,
    batch: tuple[str, int | str] | None,
) -> Table:
    """Return a table from its pickle."""
    table = open(storage, options, as_of=None if pinned is None else pinned[0])
    if pinned is not None:
        require_same(storage, table.snapshot(), pinned[1])
    if rests_on is not None:
        table = table._copy(_rests_on=rests_on)
    return table if batch is None else table.once(*batch)


@takes_metadata
def create(
    path: Any,
    schema: Any,
    key: Sequence[str],
    *,
    partition_by: Sequence[str] = (),
    ordering: str | Sequence[str] | None = None,
    table_type: str = "MERGE_ON_READ",
    key_index: str | None = None,
    scope: str | None = None,
    indexes: Sequence[str] = (),
    version: int | None = None,
    formats: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, object] | None = None,
    metadata: CommitMetadata = None,
) -> Table:
    """Create a table.

    path, storage_options: As for :func:`open`. The path must not contain a table.
    schema: The data columns, a schema of pyarrow, polars or Spark (``df.schema``), or any object
        with ``__arrow_c_schema__``. Types that cannot be restored without loss are refused.
        Metadata of fields is stored, metadata of the schema is not.
    key: Columns of the record key.
    partition_by: Partition columns, as Hive-style directories.
    ordering: Column whose larger value wins if a key is written twice, or several such columns,
        which are compared one after the other.
    table_type: "MERGE_ON_READ" or "COPY_ON_WRITE", in any case, or "mor" or "cow".
    key_index: How keys are found: "bloom" (default), "record", "simple", "bucket(buckets='8')",
        "memory", "lmdb", or an index of a package.
    scope: "partition" (default) or "table": where a key is unique. Hudi's option
        ``hoodie.index.type`` sets both ``key_index`` and ``scope``.
    indexes: Skipping indexes such as ``"bitmap(status)"``.
    version: Hudi's table version, 6 (default) or 9. The option ``mdt.table.version`` sets it, too.
    formats: Formats whose readers can read the table: ``["hudi", "delta"]`` for Delta, too. The
        option ``mdt.formats`` sets them, too.
    options: See :mod:`mdt.config`. Options of the scopes session and machine apply to the returned
        object and are not stored. Options of Hudi are accepted: :mod:`mdt.hudi_options`.
    metadata: As for :meth:`Table.upsert`.

    Raises Invalid if the arguments contradict each other or the table exists, Unsupported for
    storage without conditional put.

    >>> schema = pa.schema({"id": pa.string(), "city": pa.string(), "ts": pa.int64()})
    >>> mdt.create("rides", schema, key=["id"], partition_by=["city"], ordering="ts")
    <mdt table rides MERGE_ON_READ key=id at ...rides>
    """
    given = late.given_options.read(options)
    storage = late.create_table.storage_for(path, given.own, storage_options)
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
        version=version,
        formats=formats,
        options=given.own,
    )
    late.given_options.require(definition, given.described)
    late.create_table.create(storage, definition)
    overrides = {
        name: text
        for name, text in canonical(given.own).items()
        if OPTIONS.find(name).scope != "table"
    }
    return Table(storage, overrides)


def open(
    path: Any,
    options: Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    as_of: Point | None = None,
) -> Table:
    """Open the table at ``path``: a table of ours, or any Hudi table to read it.

    A table that other Hudi writers wrote can be read and not written: scans, past states, changes,
    look-ups by key, and Spark. Nothing is written into it. This includes a table of ours to which
    another writer has committed since.

    path: A local path, a URL (``s3://bucket/table``, ``gs://…``, ``az://…``), or an obstore store
        whose root is the table.
    options: Override the options stored with the table, for this object only.
    storage_options: Endpoint, region, credentials and so on, by the names that object_store,
        deltalake and polars use. The environment supplies the rest.
    as_of: Show a past snapshot (:meth:`Table.snapshot`). The table is then read-only and does not
        follow new commits. A table of other writers has no commit numbers and tags, so give an
        instant or a time.

    Raises Invalid if there is no table, Unsupported if a newer version wrote it, or if a property
    of a table of other writers changes rows in a way that mdt does not support, Corrupt if it is
    damaged, Unavailable if the storage cannot be reached or lacks credentials.

    >>> mdt.create("fares", pa.schema({"id": pa.string()}), key=["id"]).upsert([{"id": "a"}]).seq
    1
    >>> mdt.open("fares").scan().count(), mdt.open("fares", as_of=0).scan().count()
    (1, 0)
    """
    given = late.given_options.read(options)
    storage = open_storage(path, storage_options=storage_options)
    table: Table | None = None
    try:
        table = Table(storage, given.own, as_of=as_of)
    except MdtError as error:
        if not error.is_of_others:
            raise
        text = "%s is read without indexes, and cannot be written: %s"
        logs.METADATA.info(text, storage.url, error.message)
    if table is None:
        table = _of_others(storage, as_of, given.own)
        storage = table.storage
    if storage is not path:
        storage.is_durable = table.options.durable
    definition = table.definition
    key_indexes.check(table.options, definition.key_index, definition.scope)
    _require_fixed(definition, given.own)
    late.given_options.require(definition, given.described, is_written=not storage.is_imported)
    return table


def _of_others(source: Storage, as_of: Point | None, options: Mapping[str, Any]) -> Table:
    """Return a table of other writers, which is only read."""
    if as_of is not None:
        instant = late.as_of.instant_of(as_of)
        return Table(late.imported_storage.ImportedStorage(source, [instant]), options)
    storage = late.imported_storage.ImportedStorage(source, options=parse_options(options))
    try:
        table = Table(storage, options)
    except Corrupt:
        if not storage.leave_folder():
            raise
        table = Table(storage, options)
    storage.follow()
    return table


def _require_fixed(definition: TableDefinition, options: Mapping[str, Any]) -> None:
    """Raise Invalid for options that are fixed at creation and differ from the table's."""
    stored = definition.parsed.to_mapping("table")
    for name, text in canonical(options).items():
        if not OPTIONS.find(name).fixed or name in key_indexes.OPTIONS:
            continue
        current = stored[name]
        if name == "mdt.table.name" and text:
            current = definition.name
        if text != current:
            hint = "leave the option out"
            if name in ALTERABLE:
                hint += ", or change the table with t.alter"
            raise Invalid(f"{name} is fixed at creation; this table has {current!r}", hint=hint)


def adopt(
    path: Any,
    *,
    key_index: str | None = None,
    scope: str | None = None,
    indexes: Sequence[str] = (),
    formats: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, object] | None = None,
    compact: bool = False,
    dry_run: bool = False,
    progress: ProgressOption = None,
) -> Table | AdoptionPlan:
    """Give a table of another Hudi writer the log and the indexes of mdt, without rewriting data.

    Afterwards it is read and written like a table that mdt created, and other Hudi writers can go
    on to write to it: reads see their commits, and writes import them (:meth:`Table.refresh`).
    Writers of both kinds take turns, unless they share a lock (``mdt.lock.provider``).

    It reads footers, key columns and log files. The live rows of log files are copied into files
    below ``.hoodie/.mdt/``. Record keys and partitions are compared with those that mdt would
    write. Commits go on with Hudi's metadata table, if there is one; the first of them removes it
    if it has a partition that mdt cannot keep (``lost_partitions`` of the plan), and the next Hudi
    writer builds it again.

    path, options, storage_options: As for :func:`open`.
    key_index, scope, indexes: As for :func:`create`, but the scope is ``"table"`` by default if
        Hudi's metadata table has a record index of the whole table. Key columns, partition columns
        and the ordering field are those of the table. A table with Hudi's bucket index needs the
        key index ``bucket`` with the same number of buckets.
    formats: As for :func:`create`. Formats besides Hudi are added by a commit at the end.
    compact: Compact file groups with log files at the end, so that no copies of their rows remain.
    dry_run: Return an :class:`AdoptionPlan`, with an estimate of the time, and change nothing.

    Raises Invalid if there is no Hudi table or if it is one of mdt, Unsupported if mdt cannot write
    to it, with the reason. After a crash, the next write or refresh continues.

    >>> import shutil
    >>> t = mdt.create("theirs", pa.schema({"id": pa.string()}), key=["id"])
    >>> _ = t.upsert([{"id": "a"}])
    >>> shutil.rmtree("theirs/.hoodie/.mdt")  # as another Hudi writer would have left it
    >>> mdt.adopt("theirs", dry_run=True).file_groups
    1
    >>> mdt.adopt("theirs").get("a")
    {'id': 'a'}
    """
    given = late.given_options.read(options)
    storage = open_storage(path, storage_options=storage_options)
    definition, plan = late.adopting.plan_adoption(
        storage,
        key_index=key_index,
        scope=scope,
        indexes=indexes,
        formats=formats,
        options=given.own,
        compact=flag("compact", compact),
        is_dry=flag("dry_run", dry_run),
    )
    own = {name: value for name, value in given.own.items() if name != FORMATS_OPTION}
    _require_fixed(definition, own)
    late.given_options.require(definition, given.described)
    if dry_run:
        return plan
    late.adopting.adopt(storage, definition)
    table = open(storage, own)
    with progress_callback(progress, "adopt") as callback:
        late.adopting.import_first(table.metadata, table.options, callback)
    if definition.indexes:
        table.build_indexes(progress=progress)
    if compact:
        table.compact(progress=progress)
    if len(plan.formats) > 1:
        table.alter(formats=plan.formats)
    return table


def register(table: Table, catalog: Catalog, name: str, *, location: str | None = None) -> None:
    """Enter a table in a catalog, so that engines find it by name.

    Call it again after columns were changed or partitions were added or dropped: the entry is then
    brought up to date. A catalog of Iceberg gets the newest commit; with the option
    ``mdt.iceberg.table``, writers keep it up to date.

    catalog: :class:`mdt.catalogs.HiveMetastore` or :class:`mdt.catalogs.Polaris` for engines with a
        Hudi reader, :class:`mdt.catalogs.Unity` for a table with the format delta, or a catalog of
        pyiceberg for a table with the format iceberg.
    name: Namespace and name in the catalog, such as ``lake.trips``.
    location: URL under which engines find the table, if it is not its path: ``s3a://lake/trips``.
        Not for Iceberg, whose metadata have it.

    Raises Invalid if another table has the name or the namespace does not exist, Unsupported for a
    table in memory or if another program has committed through the catalog, and Unavailable if the
    catalog does not answer.

    >>> from mdt.catalogs import Polaris
    >>> t = mdt.create("registered", pa.schema({"id": pa.string()}), key=["id"])
    >>> lake = Polaris("http://127.0.0.1:9/api", "lake", token="secret")
    >>> try:
    ...     mdt.register(t, lake, "raw.trips")
    ... except mdt.Unavailable as error:
    ...     print(error)
    http://127.0.0.1:9/api does not answer: ...
    """
    namespace, short = late.catalog_entry.split_name(name)
    is_iceberg = callable(getattr(catalog, "register_table", None))
    if not isinstance(table, Table) or not (is_iceberg or callable(getattr(catalog, "add", None))):
        raise Invalid(
            "mdt.register takes a table and a catalog",
            hint="mdt.register(t, HiveMetastore('thrift://…'), 'lake.trips')",
        )
    if is_iceberg and location is not None:
        raise Invalid("location is not for Iceberg, whose metadata have the place of the table")
    if is_iceberg:
        late.pointers.register(table.metadata, table.snapshot(), catalog, name)
        return
    url = table.path if location is None else one_text("location", location, "'s3a://lake/trips'")
    entry = late.catalog_entry.entry_of(table.snapshot(), url)
    catalog.add(entry, namespace, short)


def release(path: Any, *, storage_options: Mapping[str, object] | None = None) -> None:
    """End the adoption of a table: remove ``.hoodie/.mdt/`` and the metadata of other formats, and
    leave Hudi's table as it is.

    path, storage_options: As for :func:`open`.

    Raises Invalid if the table is not adopted, or if mdt created it.

    >>> import shutil
    >>> t = mdt.create("others", pa.schema({"id": pa.string()}), key=["id"])
    >>> shutil.rmtree("others/.hoodie/.mdt")  # as another Hudi writer would have left it
    >>> _ = mdt.adopt("others")
    >>> mdt.release("others")
    """
    late.adopting.release(open_storage(path, storage_options=storage_options))


def repair(
    path: Any,
    options: Mapping[str, Any] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: ProgressOption = None,
) -> RepairReport:
    """Repair the table at ``path`` as :meth:`Table.repair` does, even if it cannot be opened.

    It first repairs the files that prevent opening, properties and hint. If this does not help, the
    report lists what is lost. Nothing is deleted.

    options, storage_options: As for :func:`open`.

    Raises Invalid if there is no table, Unsupported if another writer has taken it over.

    >>> _ = mdt.create("damaged", pa.schema({"id": pa.string()}), key=["id"])
    >>> print(mdt.repair("damaged"))
    nothing is damaged
    """
    given = late.given_options.read(options)
    storage = open_storage(path, storage_options=storage_options)
    with progress_callback(progress, "repair") as callback:
        metadata = late.metadata_table.Metadata(storage, given.own)
        return late.repair_service.repair(metadata, callback)
