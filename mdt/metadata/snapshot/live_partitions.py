"""The partitions of a table that have rows, with their file groups, and which ones a user means."""

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
from mdt.schema.lossy_casts import whole_array
from mdt.schema.names import avro_name

ANY = "*"
"""Stands for anything in a pattern of partition paths."""
_OTHER_WILDCARDS = re.compile(r"[?\[]")
"""Of shells: a partition that is dropped by its name must be that one."""


def partitioned(
    snapshot: Snapshot, partitions: Sequence[str] | None = None
) -> tuple[Int64Array, dict[str, Int64Array]]:
    """Return the live file groups of some partitions, rising, and partition path -> the places of
    its groups among them.  O(files).
    """
    groups = np.unique(snapshot.file_groups.of_files(snapshot.live_numbers))
    paths = snapshot.file_groups.partitions(groups).astype(str)
    if partitions is not None:
        wanted = np.isin(paths, list(partitions))
        groups, paths = groups[wanted], paths[wanted]
    if not len(groups):
        return groups, {}
    names, code = np.unique(paths, return_inverse=True)
    order = np.argsort(code, kind="stable")
    places = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
    return groups, dict(zip(names.tolist(), places, strict=True))


def live_paths(snapshot: Snapshot) -> list[str]:
    """Return the paths of the partitions with rows, rising.  O(files)."""
    groups = np.unique(snapshot.file_groups.of_files(snapshot.live_numbers))
    found: list[str] = np.unique(snapshot.file_groups.partitions(groups).astype(str)).tolist()
    return found


def matching(snapshot: Snapshot, partitions: str | Sequence[str] | None) -> list[str] | None:
    """Return the paths of the partitions that are meant, None for all; ``*`` stands for anything.

    Raises Invalid if a text names none.
    """
    if partitions is None:
        return None
    paths = live_paths(snapshot)
    found: dict[str, None] = {}
    for text in texts("partitions", partitions, "['city=Oslo'], or 'city=*'"):
        mine = within(paths, _as_path(snapshot.definition, text))
        if not mine:
            raise Invalid(
                f"there is no partition {text!r}",
                hint=f"there are {', '.join(paths[:3]) or 'none'} …",
            )
        found |= dict.fromkeys(mine)
    return list(found)


def within(paths: Sequence[str], pattern: str) -> list[str]:
    """Return those of the paths that are ``pattern``, or match it; ``*`` alone stands for anything.

    >>> within(["city=Oslo/day=1", "city=Oslo/day=2", "city=Rome/day=1"], "city=Oslo/*")
    ['city=Oslo/day=1', 'city=Oslo/day=2']
    >>> within(["city=what%3F", "city=whats"], "city=what?")
    []
    """
    if ANY not in pattern:
        return [path for path in paths if path == pattern]
    glob = _OTHER_WILDCARDS.sub(r"[\g<0>]", pattern)
    return [path for path in paths if path == pattern or fnmatchcase(path, glob)]


def among(paths: Collection[str], patterns: Collection[str]) -> set[str]:
    """Return those of the paths that are one of ``patterns``, or match one, as :func:`within`.
    O(paths · patterns with ``*``).

    >>> sorted(
    ...     among(
    ...         ["city=Oslo/day=1", "city=Oslo/day=2", "city=Rome/day=1"],
    ...         ["city=Rome/day=1", "*/day=2"],
    ...     )
    ... )
    ['city=Oslo/day=2', 'city=Rome/day=1']
    """
    some = list(paths)
    matched = (within(some, pattern) for pattern in patterns if ANY in pattern)
    return set(paths).intersection(patterns).union(*matched)


def patterns(definition: TableDefinition, partitions: Any) -> list[str]:
    """Return what users say of partitions as patterns of their paths.

    ``partitions``: a path, in which ``*`` stands for anything; a dict, partition column -> value,
    for all partitions with these values; or an iterable of such.  Raises Invalid for what can name
    no partition of the table.
    """
    if not definition.partition_by:
        raise Invalid(
            "the table has no partitions",
            hint="truncate() ends all rows, delete_where() those that match",
        )
    if isinstance(partitions, str | Mapping):
        partitions = [partitions]
    try:
        wanted = list(partitions)
    except TypeError:
        raise Invalid(
            f"partitions={shown(partitions)} names none",
            hint="write 'city=Oslo', {'city': 'Oslo'}, or a list of such",
        ) from None
    return [_pattern(definition, one) for one in wanted]


def _pattern(definition: TableDefinition, one: object) -> str:
    if isinstance(one, Mapping):
        return _of_values(definition, one)
    return _of_text(definition, one)


def paths_with(snapshot: Snapshot, values: Mapping[str, Any]) -> list[str]:
    """Return the paths of the partitions with rows that have ``values``, partition column -> value.
    Raises Invalid as :func:`patterns` does.
    """
    pattern = patterns(snapshot.definition, values or ANY)[0]
    return within(live_paths(snapshot), pattern)


def named(definition: TableDefinition, paths: Sequence[str]) -> list[str]:
    """Return what partitions are called whose ``paths`` are given, with the names of their columns,
    as Hive calls them.
    """
    if definition.hive_style or definition.time_path is not None:
        return list(paths)
    names = list(map(avro_name, definition.partition_by))
    return ["/".join(map("=".join, zip(names, path.split("/"), strict=True))) for path in paths]


def _as_path(definition: TableDefinition, text: str) -> str:
    """Return the path of a partition, or a pattern of such, in which columns may have their own
    names: those that directories have.
    """
    levels, columns = text.split("/"), definition.partition_by
    if not definition.hive_style or len(levels) != len(columns):
        return text
    for at, name in enumerate(columns):
        if levels[at].startswith(f"{name}="):
            levels[at] = f"{avro_name(name)}={levels[at].removeprefix(f'{name}=')}"
    return "/".join(levels)


def _of_text(definition: TableDefinition, text: object) -> str:
    columns = definition.partition_by
    if not isinstance(text, str):
        raise Invalid(
            f"partitions takes text or a dict, not a {type(text).__name__}",
            hint="write 'city=Oslo'",
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
            f"{shown(text)} is the path of no partition",
            hint=f"write {example!r}, or a dict of values",
        )
    return text


def _of_values(definition: TableDefinition, values: Mapping[Any, Any]) -> str:
    unknown = [name for name in values if name not in definition.partition_by]
    if unknown or not values:
        what = "a dict names at least one column"
        if unknown:
            what = f"{shown(unknown[0])} is no partition column"
        hint = f"the table is partitioned by {', '.join(definition.partition_by)}"
        raise Invalid(what, hint=hint)
    return "/".join(_level(definition, name, values) for name in definition.partition_by)


def _level(definition: TableDefinition, name: str, values: Mapping[Any, Any]) -> str:
    """Return what a level of the path of partitions with ``values`` is called."""
    if name not in values:
        return ANY
    type, given = definition.schema.field(name).type, [values[name]]
    try:
        if isinstance(values[name], str):
            value = pa.array(given).cast(type)
        elif definition.time_path is None:
            value = whole_array(given, type)
        else:  # any time of a day says which day
            value = pa.array(given, type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Invalid(
            f"{shown(values[name])} is no {type}, which column {name!r} has: {error}"
        ) from error
    return partition_paths(
        pa.table({name: value}), [name], definition.hive_style, definition.time_path
    )[1][0]
