"""The pointer of an Iceberg catalog to the newest version of a table, which follows each commit.

The option ``mdt.iceberg.table`` names the catalog in the configuration of pyiceberg, and the table
in it. It belongs to the process, so a table decides nothing about the catalogs that are used, and
has no credentials. A pointer is derived, as the versions are: a commit does not fail with it, and
the next writer moves it further.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mdt.errors import Invalid, MdtError, Unavailable, Unsupported
from mdt.formats.iceberg.log import IcebergMetadata
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.session import Recent, in_session

if TYPE_CHECKING:
    from mdt.catalogs.iceberg_entries import Pointer

_CATALOGS_MAX = 16


@in_session
def _catalogs() -> Recent[str, Any]:
    """Return the catalogs that this process has loaded, by name."""
    return Recent(_CATALOGS_MAX)


def register(metadata: Metadata, newest: Snapshot, catalog: Any, name: str) -> None:
    """Enter a table in an Iceberg catalog, or move its pointer to the newest version.

    Args:
        catalog: A catalog of pyiceberg.
        name: Namespace and name of the table.

    Raises Invalid if the table is not an Iceberg table, if there is no such namespace, or if
    another table has the name, Unsupported if another program has committed to it, and Unavailable.
    """
    if IcebergMetadata.name not in newest.definition.other_formats:
        raise Invalid(
            "a catalog of Iceberg takes tables with the format iceberg only",
            hint='t.alter(formats=["hudi", "iceberg"])',
        )
    _pointer(catalog, name, metadata, newest.definition).enter(newest_version(metadata, newest))


def pointer_of(metadata: Metadata, definition: TableDefinition) -> Pointer | None:
    """Return the pointer that follows the commits of this process, or None.

    Raises Invalid if pyiceberg cannot use its configuration, Unsupported without pyiceberg, and
    Unavailable.
    """
    catalog, _, name = metadata.options(definition).iceberg_table.partition(".")
    if not name or IcebergMetadata.name not in definition.other_formats:
        return None
    found = _catalogs().made(catalog, partial(loaded, catalog))
    return _pointer(found, name, metadata, definition)


@dataclass(frozen=True, slots=True)
class Standing:
    """The commit that readers of a catalog see.

    Attributes:
        name: The value of the option.
        seq: The newest commit, or None if the catalog has none of ours.
        behind: Number of later commits, or None.
        error: Why ``seq`` is None.
    """

    name: str
    seq: int | None
    behind: int | None
    error: MdtError | None = None


def standing(metadata: Metadata, newest: Snapshot) -> Standing | None:
    """Return the commit that readers of the catalog see, or None without the option."""
    name = metadata.options(newest.definition).iceberg_table
    try:
        pointer = pointer_of(metadata, newest.definition)
        if pointer is None:
            return None
        seq = pointer.seq(newest.seq)
        if seq is None:
            raise pointer.missing()
        return Standing(name, seq, max(newest.seq - seq, 0))
    except MdtError as error:
        return Standing(name, None, None, error)


def newest_version(metadata: Metadata, newest: Snapshot) -> int:
    """Return the newest version up to a snapshot. Its writer may still be about to put the last."""
    path, seq = IcebergMetadata().path, newest.seq
    while seq > newest.retention.horizon and metadata.storage.size(path(seq)) is None:
        seq -= 1
    return seq


def refuse_foreign_commits(metadata: Metadata, newest: Snapshot) -> None:
    """Raise Unsupported if another program has committed to the table through its catalog, or if
    a restored backup has undone the commit there.
    """
    try:
        pointer = pointer_of(metadata, newest.definition)
        if pointer is not None:
            pointer.seq(newest.seq)
    except Unavailable:
        pass  # the commit warns when it cannot move the pointer


def follow(metadata: Metadata, newest: Snapshot) -> tuple[str, ...]:
    """Move the pointer to the newest version. Return a warning if that fails, the first time."""
    try:
        pointer = pointer_of(metadata, newest.definition)
        if pointer is not None:
            pointer.move(newest_version(metadata, newest))
    except MdtError as error:
        warning = f"the commit is not in the catalog until the next write: {error}"
        is_new = str(error) not in metadata.warned
        metadata.warned.add(str(error))
        return (warning,) if is_new else ()
    return ()


def loaded(name: str) -> Any:
    """Return the catalog ``name`` in pyiceberg's configuration. Raises as :func:`pointer_of`."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise _without_pyiceberg(error) from error
    try:
        return load_catalog(name)
    except (ImportError, LookupError, TypeError, ValueError) as error:
        raise Invalid(
            f"pyiceberg cannot use the catalog {name!r}: {error}",
            hint="describe the catalog in .pyiceberg.yaml or in PYICEBERG_CATALOG__… variables",
        ) from error
    except Exception as error:  # its libraries raise errors of many kinds
        raise Unavailable(f"the catalog {name!r} does not answer: {error}") from error


def _pointer(catalog: Any, name: str, metadata: Metadata, definition: TableDefinition) -> Pointer:
    try:
        from mdt.catalogs import iceberg_entries
    except ImportError as error:
        raise _without_pyiceberg(error) from error
    return iceberg_entries.pointer(catalog, name, metadata.storage, definition.table_id)


def _without_pyiceberg(error: ImportError) -> Unsupported:
    return Unsupported(
        f"catalogs of Iceberg need a package that is not installed: {error}",
        hint="pip install 'pyspark-mdt[iceberg]'",
    )
