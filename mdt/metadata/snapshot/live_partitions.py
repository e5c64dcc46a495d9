"""The partitions with rows, their file groups, and the selection of partitions by users."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array
from mdt.arguments import require_unicode, shown, texts
from mdt.errors import Invalid
from mdt.hudi.partitions import partition_paths
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.schema.lossy_casts import exact_array
from mdt.schema.names import avro_name

ANY = "*"
"""Matches any text in a pattern of partition paths."""
_OTHER_WILDCARDS = re.compile(r"[?\[]")
"""Wildcards of shells, taken literally: dropping a partition by name must match only that
partition.
"""


def partitioned(
    snapshot: Snapshot, partitions: Sequence[str] | None = None
) -> tuple[Int64Array, dict[str, Int64Array]]:
    """Return the live file groups of ``partitions`` (None for all), and their indices by partition.

    The groups are ascending.  O(files).
    """
    groups = snapshot.live_groups
    paths = snapshot.file_groups.partitions(groups).astype(str)
    if partitions is not None:
        selected = np.isin(paths, list(partitions))
        groups, paths = groups[selected], paths[selected]
    if not len(groups):
        return groups, {}
    names, code = np.unique(paths, return_inverse=True)
    order = np.argsort(code, kind="stable")
    places = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
    return groups, dict(zip(names.tolist(), places, strict=True))


def live_paths(snapshot: Snapshot) -> list[str]:
    """Return the paths of the partitions with rows, ascending.  O(files)."""
    paths = snapshot.file_groups.partitions(snapshot.live_groups).astype(str)
    return list(np.unique(paths).tolist())


def select(snapshot: Snapshot, partitions: str | Sequence[str] | None) -> list[str] | None:
    """Return the paths of the selected partitions, or None for all.  ``*`` matches any text.

    Raises Invalid if a text matches no partition.
    """
    if partitions is None:
        return None
    paths = live_paths(snapshot)
    selected: dict[str, None] = {}
    for text in texts("partitions", partitions, "['city=Oslo'], or 'city=*'"):
        matches = within(paths, _as_path(snapshot.definition, text))
        if not matches:
            raise Invalid(
                f"there is no partition {text!r}",
                hint=f"there are {', '.join(paths[:3]) or 'none'} …",
            )
        selected |= dict.fromkeys(matches)
    return list(selected)


def within(paths: Sequence[str], pattern: str) -> list[str]:
    """Return the paths that equal or match ``pattern``.  Only ``*`` is a wildcard.

    >>> within(["city=Oslo/day=1", "city=Oslo/day=2", "city=Rome/day=1"], "city=Oslo/*")
    ['city=Oslo/day=1', 'city=Oslo/day=2']
    >>> within(["city=what%3F", "city=whats"], "city=what?")
    []
    """
    if ANY not in pattern:
        return [path for path in paths if path == pattern]
    glob = _OTHER_WILDCARDS.sub(r"[\g<0>]", pattern)
    return [path for path in paths if path == pattern or fnmatchcase(path, glob)]


def matching_any(paths: Collection[str], patterns: Collection[str]) -> set[str]:
    """Return the paths that match any of ``patterns``, as in :func:`within`.

    O(paths · patterns with ``*``).

    >>> paths = ["city=Oslo/day=1", "city=Oslo/day=2", "city=Rome/day=1"]
    >>> sorted(matching_any(paths, ["city=Rome/day=1", "*/day=2"]))
    ['city=Oslo/day=2', 'city=Rome/day=1']
    """
    candidates = list(paths)
    matched = (within(candidates, pattern) for pattern in patterns if ANY in pattern)
    return set(paths).intersection(patterns).union(*matched)


def patterns(definition: TableDefinition, partitions: Any) -> list[str]:
    """Return a user's selection of partitions as path patterns.

    ``partitions`` is a path, where ``*`` matches any text, a dict of partition column to value, or
    an iterable of these.  A dict selects all partitions with its values.  Raises Invalid if an item
    cannot name a partition of the table.
    """
    if not definition.partition_by:
        raise Invalid(
            "the table has no partitions",
            hint="use truncate() for all rows, or delete_where() for matching rows",
        )
    if isinstance(partitions, str | Mapping):
        partitions = [partitions]
    try:
        items = list(partitions)
    except TypeError:
        raise Invalid(
            f"partitions={shown(partitions)} is not text, a dict or a list",
            hint="use 'city=Oslo', {'city': 'Oslo'}, or a list of these",
        ) from None
    return [_pattern(definition, item) for item in items]


def _pattern(definition: TableDefinition, item: object) -> str:
    if isinstance(item, Mapping):
        return _values_pattern(definition, item)
    return _text_pattern(definition, item)


def paths_with(snapshot: Snapshot, values: Mapping[str, Any]) -> list[str]:
    """Return the paths of the partitions with rows that have ``values``, a dict of column to value.

    Raises Invalid as :func:`patterns` does.
    """
    pattern = patterns(snapshot.definition, values or ANY)[0]
    return within(live_paths(snapshot), pattern)


def hive_names(definition: TableDefinition, paths: Sequence[str]) -> list[str]:
    """Return the Hive-style names of partitions, with column names, for their ``paths``."""
    if definition.hive_style or definition.time_path is not None:
        return list(paths)
    names = list(map(avro_name, definition.partition_by))
    return ["/".join(map("=".join, zip(names, path.split("/"), strict=True))) for path in paths]


def _as_path(definition: TableDefinition, text: str) -> str:
    """Return the path or pattern of a partition, with column names as in directories.

    Users may write columns under their own names.
    """
    levels, columns = text.split("/"), definition.partition_by
    if not definition.hive_style or len(levels) != len(columns):
        return text
    for at, name in enumerate(columns):
        if levels[at].startswith(f"{name}="):
            levels[at] = f"{avro_name(name)}={levels[at].removeprefix(f'{name}=')}"
    return "/".join(levels)


def _text_pattern(definition: TableDefinition, text: object) -> str:
    columns = definition.partition_by
    if not isinstance(text, str):
        raise Invalid(
            f"a partition must be text or a dict, not {type(text).__name__}",
            hint="use 'city=Oslo'",
        )
    require_unicode("partitions", text)
    text = _as_path(definition, text)
    levels = text.split("/")
    prefixes = [""] * len(columns)
    if definition.hive_style:
        prefixes = [f"{avro_name(name)}=" for name in columns]
    depth = len(columns)
    if definition.time_path is not None:
        depth = definition.time_path.pattern.count("/") + 1
    fits = len(levels) == depth and all(map(str.startswith, levels, prefixes))
    if not fits and ANY not in text:
        example = "/".join(f"{prefix}…" for prefix in prefixes)
        raise Invalid(
            f"{shown(text)} is not a partition path of this table",
            hint=f"use {example!r}, or a dict of values",
        )
    return text


def _values_pattern(definition: TableDefinition, values: Mapping[Any, Any]) -> str:
    unknown = [name for name in values if name not in definition.partition_by]
    if unknown or not values:
        problem = "a dict of partition values must not be empty"
        if unknown:
            problem = f"{shown(unknown[0])} is not a partition column"
        hint = f"the table is partitioned by {', '.join(definition.partition_by)}"
        raise Invalid(problem, hint=hint)
    return "/".join(_level(definition, name, values) for name in definition.partition_by)


def _level(definition: TableDefinition, name: str, values: Mapping[Any, Any]) -> str:
    """Return the level of column ``name`` in the path pattern of partitions with ``values``."""
    if name not in values:
        return ANY
    type, list_of_value = definition.schema.field(name).type, [values[name]]
    try:
        if isinstance(values[name], str):
            value = pa.array(list_of_value).cast(type)
        elif definition.time_path is None:
            value = exact_array(list_of_value, type)
        else:  # any time of a day identifies the day
            value = pa.array(list_of_value, type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Invalid(
            f"{shown(values[name])} is not a valid {type} for column {name!r}: {error}"
        ) from error
    return partition_paths(
        pa.table({name: value}), [name], definition.hive_style, definition.time_path
    )[1][0]
