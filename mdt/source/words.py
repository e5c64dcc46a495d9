"""What the options of ``format("mdt")`` say: our names and Hudi's, text to text, checked.

The catalog keeps the options that a table was created with and hands all of them to readers and
writers, so there is one vocabulary for both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mdt.arguments import listed, nearest, one_of
from mdt.config import declaration, options_list
from mdt.errors import Invalid, Unsupported
from mdt.metadata.snapshot.as_of import Point
from mdt.query import READ_OPTIMIZED, SNAPSHOT
from mdt.schema.definition import COPY_ON_WRITE, MERGE_ON_READ
from mdt.stores.storage import hadoop_path

INCREMENTAL = "incremental"

NAMES: dict[str, tuple[str, ...]] = {
    "as_of": ("as.of.instant",),
    "since": ("hoodie.datasource.read.begin.instanttime",),
    "until": ("hoodie.datasource.read.end.instanttime",),
    "changes": (),
    "query_type": ("hoodie.datasource.query.type",),
    "operation": ("hoodie.datasource.write.operation",),
    "overwrite_partitions": (),
    "overwrite_mode": ("partitionoverwritemode",),
    "evolve": ("mergeschema",),
    "partial": (),
    "max_commits": ("maxcommitspertrigger",),
    "max_bytes": ("maxbytespertrigger",),
    "name": ("mdt.table.name", "hoodie.table.name", "hoodie.datasource.write.table.name"),
    "key": (
        "hoodie.datasource.write.recordkey.field",
        "hoodie.table.recordkey.fields",
        "primarykey",
    ),
    "partition_by": (
        "hoodie.datasource.write.partitionpath.field",
        "hoodie.table.partition.fields",
        "__partition_columns",
    ),
    "ordering": (
        "hoodie.datasource.write.precombine.field",
        "hoodie.table.precombine.field",
        "hoodie.table.ordering.fields",
        "precombinefield",
        "orderingfields",
    ),
    "required": ("__required_columns",),
    "table_type": ("hoodie.datasource.write.table.type", "hoodie.table.type", "type"),
    "key_index": (),
    "scope": (),
    "indexes": (),
}
"""Options of the data source with Hudi's names for the same, of its DataFrames and of its SQL;
Spark tells them in lower case.
"""

OF_TABLE = (
    "name",
    "key",
    "partition_by",
    "ordering",
    "table_type",
    "key_index",
    "scope",
    "indexes",
)
"""Those that say what a table is."""

WITHOUT_MEANING = (
    "path",
    "serialization.format",
    "checkpointlocation",
    "queryname",
    "hoodie.metadata.enable",
    "hoodie.embed.timeline.server",
    "hoodie.upsert.shuffle.parallelism",
    "hoodie.insert.shuffle.parallelism",
    "hoodie.bulkinsert.shuffle.parallelism",
    "hoodie.delete.shuffle.parallelism",
    "hoodie.datasource.write.row.writer.enable",
)
"""What Spark adds, and what users of Hudi say to every writer and what changes no row here."""

METADATA = "commit.metadata."
"""What the names of metadata for commits begin with: ``commit.metadata.run``."""
STORAGE = "storage."
"""What the names of options for the store begin with: ``storage.region``."""

_KEY_GENERATORS = (
    "simplekeygenerator",
    "complexkeygenerator",
    "nonpartitionedkeygenerator",
    "timestampbasedkeygenerator",
)
_TABLE_TYPES = {"cow": COPY_ON_WRITE, "mor": MERGE_ON_READ}
_SEQ_DIGITS_MAX = 10


@dataclass(slots=True)
class Words:
    """What options say; None and empty where they say nothing.

    ``table``: those of OF_TABLE that are given, as :func:`mdt.create` takes them.  ``options``: as
    :mod:`mdt.config` takes them. ``metadata``: what commits carry.  ``made_as``, ``made_with``: the
    same for a table that is made, with what the session says (:mod:`mdt.source.settings`).
    """

    path: str
    as_of: Point | None = None
    since: Point | None = None
    until: Point | None = None
    changes: str | None = None
    query_type: str | None = None
    operation: str | None = None
    overwrite_partitions: Any = None
    overwrite_mode: str | None = None
    evolve: bool = False
    partial: bool = False
    required: tuple[str, ...] = ()
    max_commits: int | None = None
    max_bytes: int | None = None
    table: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    storage: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    made_as: dict[str, Any] = field(default_factory=dict)
    made_with: dict[str, str] = field(default_factory=dict)


def words(given: Mapping[str, str]) -> Words:
    """Return what options say.

    Raises Invalid for an unknown one, naming the nearest, for one under two names with different
    values, and for values that mean nothing; Unsupported for what only Hudi's own writers and
    readers do.
    """
    options = {name.lower(): text for name, text in given.items()}
    if "path" not in options:
        hint = (
            "one table at a time"
            if "paths" in options
            else 'give its path: .load("trips"), or the option path'
        )
        raise Invalid("no table is named", hint=hint)
    found = Words(hadoop_path(options["path"]))
    said: dict[str, tuple[str, Any]] = {}
    for name, text in options.items():
        for word, value in _understood(name, text, found):
            before = said.setdefault(word, (name, value))
            if before[1] != value:
                raise Invalid(
                    f"{before[0]} and {name} are one option, with different values",
                    hint="give one of them",
                )
    for word, (_, value) in said.items():
        if word in OF_TABLE:
            found.table[word] = value
        else:
            setattr(found, word, value)
    found.made_as, found.made_with = dict(found.table), dict(found.options)
    return found


def _understood(name: str, text: str, found: Words) -> Iterable[tuple[str, Any]]:
    """Yield which words an option says, with their values; options of the table and of the store go
    into ``found``.
    """
    word = _WORDS.get(name)
    if word is not None:
        value = value_of(word, name, text)
        if value not in (None, ()) or word in ("partition_by", "indexes"):
            yield word, value
    elif name.startswith(STORAGE):
        found.storage[name.removeprefix(STORAGE)] = text
    elif name.startswith(METADATA):
        found.metadata[name.removeprefix(METADATA)] = text
    elif name in _CONFIGURED:
        found.options[name] = text
    elif name in _HUDIS:
        _HUDIS[name](name, text)
    elif name not in WITHOUT_MEANING:
        known = [*_WORDS, *_CONFIGURED, *_HUDIS]
        raise Invalid(f"unknown option {name!r}", hint=nearest(name, known))


def of_machine(names: Iterable[str]) -> list[str]:
    """Return which of some options, in any case, are of the machine (:data:`mdt.option.Scope`)."""
    return [
        one
        for one in names
        if one.lower() in _CONFIGURED and declaration(one.lower()).scope == "machine"
    ]


def value_of(word: str, name: str, text: str) -> Any:
    """Return what the text of a word of NAMES, given as ``name``, means.  Raises Invalid."""
    return _PARSERS[word](name, text)


def point_of(text: str) -> Point:
    """Return what stands for a point in history: few digits are a seq, as Hudi's 000 is; "earliest"
    is the first.
    """
    if text.lower() == "earliest":
        return 0
    if text.isascii() and text.isdigit() and len(text) <= _SEQ_DIGITS_MAX:
        return int(text)
    return text


def _point(name: str, text: str) -> Point:
    return point_of(text)


def _changes(name: str, text: str) -> str:
    return one_of(name, text.lower(), ("net", "all"))


def _overwrite_mode(name: str, text: str) -> str:
    return one_of(name, text.strip().lower(), ("static", "dynamic"))


def _query_type(name: str, text: str) -> str:
    return one_of(name, text.lower(), (SNAPSHOT, READ_OPTIMIZED, INCREMENTAL))


def columns_of(name: str, text: str) -> tuple[str, ...]:
    """Return names separated by commas, those with commas in backquotes; or as Spark lists those of
    ``partitionBy``.
    """
    return tuple(json.loads(text) if name.startswith("__") else listed(text))


def _column(name: str, text: str) -> str | None:
    found = listed(text)  # the name may stand in backquotes, and need not
    return found[0] if len(found) == 1 else text.strip() or None


def _table_type(name: str, text: str) -> str:
    kind = text.strip()
    return _TABLE_TYPES.get(kind.lower(), kind.upper())


_SPEC = re.compile(r"""(?:'[^']*'|"[^"]*"|[^;])+""")


def _specs(name: str, text: str) -> tuple[str, ...]:
    """Return indexes separated by semicolons: commas stand between their options.  Those in quotes
    are of names.
    """
    return tuple(part.strip() for part in _SPEC.findall(text) if part.strip())


def _partitions(name: str, text: str) -> Any:
    """Return which partitions are meant, as :meth:`mdt.Table.delete_partition` takes them: JSON, or
    a path.
    """
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise Invalid(
            f"{name} = {text}: {error}", hint="write a path, city=Oslo, or JSON"
        ) from None


def _text(name: str, text: str) -> str:
    return text.strip()


def flag_of(name: str, text: str) -> bool:
    """Return whether a text says true.  Raises Invalid if it says neither true nor false."""
    return one_of(name, text.strip().lower(), ("true", "false")) == "true"


def _positive(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise Invalid(f"{name} = {text}", hint="give a whole number from 1 on")
    return int(text)


def _no_cdc(name: str, text: str) -> None:
    if text.lower() not in ("false", "latest_state"):
        raise Unsupported(
            f"{name} = {text}: Hudi's format of changes is not written or read",
            hint=(
                "every table tells its changes, without it: the options since and changes (net or"
                " all)"
            ),
        )


def _key_generator(name: str, text: str) -> None:
    if not text.lower().endswith(_KEY_GENERATORS):
        raise Unsupported(
            f"{name} = {text} is not supported",
            hint="leave it out: it follows from key, partition_by and mdt.partition.time.*",
        )


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "as_of": _point,
    "since": _point,
    "until": _point,
    "changes": _changes,
    "name": _column,
    "query_type": _query_type,
    "operation": lambda name, text: text.strip().lower(),
    "overwrite_partitions": _partitions,
    "overwrite_mode": _overwrite_mode,
    "evolve": flag_of,
    "partial": flag_of,
    "max_commits": _positive,
    "max_bytes": _positive,
    "key": columns_of,
    "partition_by": columns_of,
    "required": columns_of,
    "ordering": _column,
    "table_type": _table_type,
    "key_index": _text,
    "scope": _text,
    "indexes": _specs,
}
_HUDIS: dict[str, Callable[[str, str], None]] = {
    "hoodie.table.cdc.enabled": _no_cdc,
    "hoodie.datasource.query.incremental.format": _no_cdc,
    "hoodie.datasource.write.keygenerator.class": _key_generator,
    "hoodie.table.keygenerator.class": _key_generator,
}
"""Hudi's options that are checked and say nothing more."""

_WORDS = {name: word for word, others in NAMES.items() for name in (word, *others)}
_CONFIGURED = frozenset(
    name for option in options_list() for name in (option["name"], *option["aliases"])
)
