"""Entries in Iceberg catalogs, by the catalog classes of pyiceberg.

A catalog that stores the location of a metadata file (SQL, Hive, Glue) gets that of our version: a
commit of pyiceberg compares the pointer that it has read, and moves it. A REST server writes
metadata of its own, so it gets our snapshots and schemas, if its newest snapshot is still the one
that was read. In both, a pointer of ours only moves to later commits.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import load_file_io
from pyiceberg.table import StagedTable, Table, TableProperties
from pyiceberg.table import update as requests
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import IcebergBaseModel

from mdt.errors import Corrupt, Invalid, MdtError, Missing, Unavailable, Unsupported
from mdt.formats.iceberg.manifests import FOLDER
from mdt.formats.iceberg.metadata import version_path
from mdt.limits import ICEBERG_METADATA_BYTES_MAX
from mdt.stores.storage import Storage

R = TypeVar("R", bound=IcebergBaseModel)

_ATTEMPTS_MAX = 10
"""Attempts to move a pointer. Each failure is the success of another publisher."""
_LONG_ERROR = 300
_REPAIR = "t.repair() makes it"
_VERSION = re.compile(r"v([0-9]{1,18})\.metadata\.json")
_MAIN = "main"
"""The branch that readers read."""
_MAPPING = TableProperties.DEFAULT_NAME_MAPPING
"""The property with the names of columns in files of other writers."""


@dataclass(frozen=True, slots=True)
class Pointer(ABC):
    """The entry of a table in a catalog.

    Attributes:
        catalog: The catalog.
        name: Namespace and name of the table in it.
        storage: The table.
        table_id: Id of the table.
    """

    catalog: Catalog
    name: str
    storage: Storage
    table_id: str

    @property
    def title(self) -> str:
        """The name with that of the catalog, as the option ``mdt.iceberg.table`` has it."""
        return f"{self.catalog.name}.{self.name}"

    def seq(self, newest: int) -> int | None:
        """Return the commit that readers of the catalog see, or None if it has no such table.

        Args:
            newest: The newest commit of the table.

        Raises Invalid if another table has the name, Unsupported if another program has committed
        to the table or if a restored backup has undone the commit, and Unavailable.
        """
        with self._answers():
            try:
                found = self.catalog.load_table(self.name)
            except NoSuchTableError:
                return None
        seq = self._seq_of(found)
        self._refuse_undone_commit(found, newest)
        return seq

    def missing(self) -> Invalid:
        """Return the error for a catalog without the table."""
        text = f"the catalog {self.catalog.name} has no table {self.name}"
        return Invalid(text, hint="mdt.register enters it")

    def enter(self, seq: int) -> None:
        """Enter the table with version ``seq``, or move its pointer there. Raises as :meth:`move`,
        and Invalid if there is no such namespace.
        """
        metadata, path = self._version(seq)
        namespace = self.name.rpartition(".")[0]
        try:
            with self._answers(TableAlreadyExistsError):
                if not self.catalog.namespace_exists(namespace):
                    raise Invalid(
                        f"the catalog {self.catalog.name} has no namespace {namespace!r}",
                        hint="create it in the catalog first",
                    )
                self.catalog.register_table(self.name, f"{metadata.location}/{path}")
        except TableAlreadyExistsError:
            self.move(seq)

    def move(self, seq: int, *, replaces: bool = False) -> None:
        """Move the pointer to version ``seq``, unless it is there or at a later one.

        Args:
            replaces: Remove the commit of another program, if the catalog can.

        Raises Invalid if the catalog does not have the table, otherwise as :meth:`seq`.
        """
        for _ in range(_ATTEMPTS_MAX):
            try:
                with self._answers(CommitFailedException, NoSuchTableError):
                    self._try_to_move(seq, replaces=replaces)
                    return
            except CommitFailedException:
                pass
            except NoSuchTableError as error:
                raise self.missing() from error
        raise Unavailable(f"{self.title} was changed by others {_ATTEMPTS_MAX} times")

    @abstractmethod
    def _try_to_move(self, seq: int, *, replaces: bool) -> None:
        """Move the pointer once. Raises CommitFailedException if another publisher is first."""

    @abstractmethod
    def _version_of(self, found: Table) -> int | None:
        """Return the version of an entry, or None if it is not one of ours."""

    def _seq_of(self, found: Table) -> int:
        """Return the commit of an entry. Raises Invalid and Unsupported as :meth:`seq`."""
        self._require_own(found)
        version = self._version_of(found)
        if version is None:
            snapshot = found.metadata.current_snapshot()
            summary = snapshot.summary if snapshot else None
            engine = summary.get("engine-name") if summary else None
            raise Unsupported(
                f"another program{f' ({engine})' if engine else ''} has committed to {self.title},"
                f" which only mdt may write: it is at {found.metadata_location}",
                hint="t.repair() points to our newest version; in a REST catalog, drop the table"
                " without its files and register it again",
            )
        return version

    @abstractmethod
    def _refuse_undone_commit(self, found: Table, newest: int) -> None:
        """Raise Unsupported if a restored backup has undone the commit of an entry."""

    def _require_own(self, found: Table) -> None:
        """Raise Invalid if an entry is that of another table, or of another copy."""
        metadata = found.metadata
        is_same = metadata.table_uuid == UUID(self.table_id)
        if not (is_same and self.storage.is_at(metadata.location)):
            raise Invalid(
                f"{self.title} is another table in the catalog, at {metadata.location}",
                hint="drop it from the catalog, or choose another name",
            )

    def _version(self, seq: int) -> tuple[TableMetadata, str]:
        """Return a version of ours and its path. Raises Missing and Corrupt."""
        path = version_path(seq)
        data = self.storage.read_if_exists(path, ICEBERG_METADATA_BYTES_MAX)
        if data is None:
            raise Missing("a version of Iceberg is missing", path=path, hint=_REPAIR)
        try:
            return TableMetadataUtil.parse_raw(data.decode()), path
        except (ValueError, TypeError, LookupError, ValidationError) as error:
            text = f"a version of Iceberg cannot be read: {str(error)[:_LONG_ERROR]}"
            raise Corrupt(text, path=path, hint=_REPAIR) from error

    @contextmanager
    def _answers(self, *expected: type[Exception]) -> Iterator[None]:
        """Turn errors of the catalog into Unavailable, except ``expected`` ones."""
        try:
            yield
        except Exception as error:  # catalogs raise errors of many libraries
            if isinstance(error, (MdtError, *expected)):
                raise
            text, hint = f"{type(error).__name__}: {str(error)[:_LONG_ERROR]}", ""
            if isinstance(error, FileNotFoundError):
                hint = (
                    "if cleaning or a restored backup has removed it, drop the table from the"
                    " catalog and register it"
                )
            raise Unavailable(f"the catalog of {self.title} failed: {text}", hint=hint) from error


class LocationPointer(Pointer):
    """An entry with the location of a metadata file."""

    def _try_to_move(self, seq: int, *, replaces: bool) -> None:
        """Store the location of our metadata file by a commit of the catalog.

        The commit of pyiceberg makes a metadata file with a random name, and none of format version
        3 (0.12). So a copy of the catalog takes our file instead.
        """
        metadata, path = self._version(seq)

        def stage(current: Table | None, identifier: Any, *_: object) -> Table:
            if current is None:
                raise NoSuchTableError(self.name)
            self._require_own(current)
            is_foreign = self._version_of(current) is None
            if not (is_foreign and replaces) and self._seq_of(current) >= seq:
                return current
            place = f"{metadata.location}/{path}"
            return StagedTable(identifier, metadata, place, current.io, self.catalog)

        def write_nothing(*_: object, **__: object) -> None:
            """Leave the file, which exists, as it is."""

        moving = copy(self.catalog)
        vars(moving).update(_update_and_stage_table=stage, _write_metadata=write_nothing)
        name = self.catalog.identifier_to_tuple(self.name)
        named = StagedTable(name, metadata, path, load_file_io(), self.catalog)
        after = moving.commit_table(named, (), ()).metadata_location
        version = _version_at(after)
        if version is None or version < seq:
            raise Unsupported(f"this release of pyiceberg left {self.title} at {after}")

    def _refuse_undone_commit(self, found: Table, newest: int) -> None:
        """Do nothing. Such an entry cannot be loaded, as its file is gone."""

    def _version_of(self, found: Table) -> int | None:
        return _version_at(found.metadata_location)


def _version_at(location: str) -> int | None:
    match = _VERSION.fullmatch(location.rpartition("/")[2])
    return int(match[1]) if match else None


class SnapshotPointer(Pointer):
    """An entry of a REST server, which has our snapshots in metadata of its own.

    Source: https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml.
    """

    def _try_to_move(self, seq: int, *, replaces: bool) -> None:
        """Add the snapshots, schemas and names of columns that the server lacks, and remove
        expired snapshots.

        A server gives a new schema the next id, as Iceberg's own library does.
        """
        found = self.catalog.load_table(self.name)
        at, (ours, _) = self._seq_of(found), self._version(seq)
        self._refuse_undone_commit(found, seq)
        if at >= seq:
            return
        theirs = found.metadata
        ids = {schema.fields: schema.schema_id for schema in theirs.schemas}
        updates = list[requests.TableUpdate]()
        for schema in ours.schemas:
            if schema.fields not in ids:
                ids[schema.fields] = max(ids.values()) + 1
                new = schema.model_copy(update={"schema_id": ids[schema.fields]})
                updates.append(requests.AddSchemaUpdate(schema=new))
        new_ids = {schema.schema_id: ids[schema.fields] for schema in ours.schemas}
        current = new_ids[ours.current_schema_id]
        if current != theirs.current_schema_id:
            updates.append(_request(requests.SetCurrentSchemaUpdate, schema_id=current))
        for snapshot in ours.snapshots:
            if snapshot.snapshot_id > at and snapshot.schema_id is not None:
                schema_id = new_ids[snapshot.schema_id]
                new_snapshot = snapshot.model_copy(update={"schema_id": schema_id})
                updates.append(requests.AddSnapshotUpdate(snapshot=new_snapshot))
        mapping = ours.properties.get(_MAPPING)
        if mapping and mapping != theirs.properties.get(_MAPPING):
            updates.append(requests.SetPropertiesUpdate(updates={_MAPPING: mapping}))
        ref = {"ref_name": _MAIN, "type": "branch", "snapshot_id": seq}
        updates.append(_request(requests.SetSnapshotRefUpdate, **ref))
        retained = {snapshot.snapshot_id for snapshot in ours.snapshots}
        expired = {snapshot.snapshot_id for snapshot in theirs.snapshots} - retained
        if expired:
            remove = _request(requests.RemoveSnapshotsUpdate, snapshot_ids=sorted(expired))
            updates.append(remove)
        main, id = theirs.current_snapshot_id, theirs.current_schema_id
        requirements: tuple[requests.TableRequirement, ...] = (
            requests.AssertTableUUID(uuid=theirs.table_uuid),
            _request(requests.AssertRefSnapshotId, ref=_MAIN, snapshot_id=main),
            _request(requests.AssertCurrentSchemaId, current_schema_id=id),
        )
        self.catalog.commit_table(found, requirements, tuple(updates))

    def _refuse_undone_commit(self, found: Table, newest: int) -> None:
        """See :meth:`Pointer._refuse_undone_commit`.

        A missing list of manifests may also have been cleaned or damaged.
        """
        snapshot = found.metadata.current_snapshot()
        if snapshot is None:
            return
        seq, list_path = snapshot.snapshot_id, snapshot.manifest_list
        if self.storage.size(list_path.removeprefix(f"{found.metadata.location}/")) is not None:
            return
        if seq <= newest:
            try:
                ours = self._version(seq)[0].snapshot_by_id(seq)
            except (Missing, Corrupt):
                return
            if ours is None or ours.manifest_list == list_path:
                return
        raise Unsupported(
            f"{self.title} is at a commit {seq} that a restored backup of the table has undone",
            hint="drop the table from the catalog without its files and register it again",
        )

    def _version_of(self, found: Table) -> int | None:
        snapshot = found.metadata.current_snapshot()
        if snapshot is None:
            return 0
        id, folder = snapshot.snapshot_id, f"{found.metadata.location}/{FOLDER}/"
        name = snapshot.manifest_list.removeprefix(folder)
        return id if re.fullmatch(rf"snap-{id}-[0-9a-f]{{8}}\.avro", name) else None


def _request(kind: type[R], **fields: Any) -> R:
    """Return a part of a request. Type checkers expect the names of its fields in JSON."""
    return kind(**fields)


def pointer(catalog: Catalog, name: str, storage: Storage, table_id: str) -> Pointer:
    """Return the entry ``name`` of a table. Arguments as those of :class:`Pointer`."""
    kind = LocationPointer if isinstance(catalog, MetastoreCatalog) else SnapshotPointer
    return kind(catalog, name, storage, table_id)
