"""Signs of another Hudi writer on our table, which would leave our metadata behind."""

from __future__ import annotations

from collections.abc import Mapping

from mdt.errors import Unsupported
from mdt.hudi import timeline
from mdt.metadata import Metadata
from mdt.paths import HUDI

_CHANGES = frozenset(("commit", "deltacommit", "replacecommit"))


def refuse_properties(found: Mapping[str, str]) -> None:
    """Raise Unsupported if ``hoodie.properties`` says what our writer cannot keep up with."""
    if found.get("hoodie.table.version") != "6":
        raise Unsupported(
            f"hoodie.properties says table version {found.get('hoodie.table.version')}; this writer keeps version 6",
            hint="another writer has upgraded the table; set hoodie.write.table.version=6 there",
        )
    if found.get("hoodie.table.metadata.partitions"):
        raise Unsupported(
            "another writer keeps a Hudi metadata table here, which would hide our commits from readers",
            hint="disable hoodie.metadata.enable in that writer and remove hoodie.table.metadata.partitions",
        )


def refuse_commits(metadata: Metadata) -> None:
    """Raise Unsupported if Hudi's timeline has completed changes that are not in our log.  One listing."""
    names = [info.path.rpartition("/")[2] for info in metadata.storage.list_dir(HUDI)]
    found = [instant for name in names if (instant := timeline.parse_name(name)) is not None]
    changes = {i.time for i in found if i.state == timeline.COMPLETED and i.action in _CHANGES}
    # The listing comes first: what our own writers commit meanwhile is in the newer snapshot.
    foreign = sorted(changes - metadata.newest().instants)
    if foreign:
        raise Unsupported(
            f"another Hudi writer has committed here {len(foreign)} times, first at {foreign[0]}; mdt does not know its rows",
            hint="read the table with a Hudi reader, and write the rows to a new table of mdt",
        )
