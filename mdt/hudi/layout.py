"""The parts of Hudi's directory that depend on the table version, and the supported versions.

A layout defines the names and bodies of instants, and the order of writes. It does no I/O and makes
no decisions. Its results depend on its arguments only, so everything can be recreated after a
crash.

Base files, blocks of log files, plans of services, bodies of cleanings and partition markers are
the same in all versions, and therefore not part of a layout.
"""

from __future__ import annotations

from mdt.errors import Unsupported
from mdt.hudi.v6 import Version6
from mdt.hudi.v9 import Version8, Version9
from mdt.schema.definition import TableDefinition

Layout = Version6
"""The type of layouts. Those of other versions override what differs from version 6."""

LAYOUTS: dict[int, Layout] = {6: Version6(), 8: Version8(), 9: Version9()}
"""Table version -> its layout."""


def layout_of(definition: TableDefinition) -> Layout:
    """Return the layout of a table. Raises Unsupported for a table version that mdt does not
    support.
    """
    layout = LAYOUTS.get(definition.hudi_version)
    if layout is None:
        versions = ", ".join(map(str, LAYOUTS))
        raise Unsupported(
            f"Hudi's table version {definition.hudi_version} is not supported, only {versions}",
            hint="upgrade the package pyspark-mdt",
        )
    return layout


def log_instants(base_instant: str, time: str) -> set[str]:
    """Return the instants that the name of a log file may contain in any layout.

    For callers that do not have the table's definition.
    """
    return {layout.log_instant(base_instant, time) for layout in LAYOUTS.values()}
