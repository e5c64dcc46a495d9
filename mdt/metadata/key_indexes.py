"""Key indexes of tables, by specification: ``bloom``, ``record``, or a third-party index such as
``cuckoo(bits='12')``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from indexes import registry
from indexes.base import TABLE, KeyIndex
from mdt.arguments import nearest
from mdt.config import INDEX_TYPES, Options
from mdt.errors import Invalid, Unsupported
from mdt.limits import THREADS_MAX
from mdt.schema.names import avro_name

if TYPE_CHECKING:
    from indexes.keys.bucket import BucketKeyIndex

_BLOOM = "bloom/1"
_SHORT = {
    _BLOOM: "bloom",
    "record/1": "record",
    "simple/1": "simple",
    "bucket/1": "bucket",
    "memory/1": "memory",
    "lmdb/1": "lmdb",
}
"""Built-in indexes are stored under short names, as in older tables."""

OPTIONS = (
    "mdt.index.type",
    "mdt.bucket.count",
    "mdt.bucket.fields",
    "mdt.bucket.partitions",
    "mdt.bucket.rule",
)
"""Options that must agree with the specification of a table's key index (:func:`check`)."""


def find(
    text: str, options: Options | None = None, *, packages: Mapping[str, str] | None = None
) -> KeyIndex:
    """Return the key index of a specification.

    ``options`` supply the settings of a Bloom index that its specification leaves out.
    ``packages`` maps index names to the packages that provide them.  Raises Unsupported, with the
    package, if the index is not installed.

    >>> find("record").name
    'record/1'
    """
    spec = registry.parse_spec(text)
    cls = registry.find_key_index(spec.kind)
    if isinstance(cls, registry.Unknown):
        package = (packages or {}).get(spec.kind)
        hint = "install the package that provides it"
        if package:
            hint = f"install the package {package}"
        raise Unsupported(
            f"the key index {text!r} is not available: {cls.reason}",
            hint=f"{hint}; reads work without it",
        )
    settings = dict(spec.options)
    if cls.name == _BLOOM and options:
        settings = {**_bloom_options(options), **settings}
    try:
        return registry.create(cls, settings)
    except ValueError as error:
        raise Invalid(f"the key index {text!r} has invalid options: {error}") from error


def keys_for(key_index: str, texts: pa.Array, ordered: pa.Array) -> pa.Array:
    """Return the form of n keys that a key index takes: their ``texts``, or their sort keys."""
    cls = registry.find_key_index(registry.parse_spec(key_index).kind)
    if isinstance(cls, registry.Unknown) or not cls.by_text:
        return ordered
    return texts


def is_kept_in_table(key_index: str) -> bool:
    """Return True if commits have key parts of a key index, or may have for an unknown index."""
    cls = registry.find_key_index(registry.parse_spec(key_index).kind)
    return isinstance(cls, registry.Unknown) or cls.kept == TABLE


def choose(key_index: object, scope: object, options: Options) -> tuple[object, object]:
    """Return the key index and the scope of a new table.

    Missing values come from Hudi's index type in ``options``, else they are bloom and partition.
    Raises Invalid if the arguments contradict the index type.
    """
    hudi_index, hudi_scope = INDEX_TYPES.get(options.index_type, ("bloom", "partition"))
    if key_index is None:
        key_index = hudi_index
    if scope is None:
        scope = hudi_scope
    if options.index_type:
        _agree(options, str(key_index), str(scope))
    return key_index, scope


def with_buckets(key_index: str, options: Options, key: Sequence[str]) -> str:
    """Return a table's key index specification, completed by Hudi's bucket options.

    Raises Invalid if the index has no buckets, if it contradicts the options, or for bucket fields
    that are not columns of ``key``.
    """
    spec, bucket_options = registry.parse_spec(key_index), _bucket_options(options)
    if not has_buckets(key_index):
        if bucket_options:
            raise Invalid(
                f"the key index {key_index!r} has no buckets",
                hint="use key_index='bucket', or remove the mdt.bucket options",
            )
        return key_index
    for name, value in bucket_options.items():
        if spec.options.get(name, value) != value:
            raise Invalid(
                f"the key index {key_index!r} and the options have different {name}",
                hint="set the value in one place only",
            )
    settings = {**spec.options, **bucket_options}
    key_columns = {name: avro_name(name) for name in (*map(avro_name, key), *key)}
    fields = [
        name.strip() for name in settings.pop("fields", ",".join(map(avro_name, key))).split(",")
    ]
    if not set(fields) <= key_columns.keys():
        raise Invalid(
            f"bucket fields must be key columns ({', '.join(key)}), not {', '.join(fields)}",
            hint="remove the bucket fields to use the whole key",
        )
    if len(key) > 1:
        settings["fields"] = ",".join(key_columns[name] for name in fields)
    return stored_spec(str(replace(spec, options=settings)))


def has_buckets(key_index: str) -> bool:
    """Return True for specifications of the key index ``bucket``.

    >>> has_buckets("bucket(buckets='8')"), has_buckets("bloom")
    (True, False)
    """
    return _kind(key_index) == "bucket"


def bucket_rules(key_index: str) -> tuple[str, int] | None:
    """Return the partition rules for numbers of buckets, and the default number, or None without
    rules.
    """
    rules = registry.parse_spec(key_index).options.get("partitions")
    if not has_buckets(key_index) or rules is None:
        return None
    return rules, cast("BucketKeyIndex", find(key_index)).count


def is_bloom(key_index: str) -> bool:
    """Return True for specifications of the key index ``bloom``."""
    return _kind(key_index) == "bloom"


def _kind(key_index: str) -> str:
    """Return the kind of a specification without its version."""
    return registry.parse_spec(key_index).kind.partition("/")[0]


def _bucket_options(options: Options) -> dict[str, str]:
    values = {
        "buckets": str(options.bucket_count or ""),
        "fields": options.bucket_fields,
        "partitions": options.bucket_partitions,
    }
    return {name: value for name, value in values.items() if value}


def check(options: Options, key_index: str, scope: str) -> None:
    """Raise Invalid if options contradict the key index, scope or number of buckets of an open
    table.
    """
    if options.index_type:
        _agree(options, key_index, scope)
    settings = registry.parse_spec(key_index).options
    for name, value in _bucket_options(options).items():
        if not has_buckets(key_index) or settings.get(name, value) != value:
            raise Invalid(
                f"the table's key index is {key_index!r}, so {name} cannot be {value}",
                hint="remove the option",
            )


def _agree(options: Options, key_index: str, scope: str) -> None:
    kind, hudi_scope = INDEX_TYPES[options.index_type]
    if _kind(key_index) != kind or scope != hudi_scope:
        raise Invalid(
            f"the index type {options.index_type} requires key_index={kind!r} and"
            f" scope={hudi_scope!r}, not {key_index!r} and {scope!r}",
            hint="remove the index type, or the key index and scope; they are fixed at creation",
        )


def _bloom_options(options: Options) -> dict[str, str]:
    """Return the settings of a Bloom index in the table's options."""
    ranges = ("tree" if options.bloom_tree else "list") if options.bloom_ranges else "none"
    threads = options.bloom_parallelism or options.threads("writer")
    return {
        "fpp": str(options.bloom_fpp),
        "ranges": ranges,
        "caching": str(options.bloom_caching).lower(),
        "threads": str(min(threads, THREADS_MAX)),
        "pairs": str(options.bloom_pairs),
    }


def stored_spec(text: object) -> str:
    """Return the specification ``text`` as tables store it, with the persisted name and version.

    Raises Invalid for text that does not parse, an unknown kind or invalid options.
    """
    if not isinstance(text, str):
        raise Invalid(
            f"key_index must be text, not {type(text).__name__}",
            hint="give the name of a key index, such as 'bloom'",
        )
    try:
        spec = registry.parse_spec(text)
    except ValueError as error:
        raise Invalid(str(error)) from error
    available = ", ".join(registry.key_index_names())
    if spec.columns:
        raise Invalid(
            f"the key index {text!r} names a column",
            hint="a key index covers the record key; remove the column",
        )
    if isinstance(registry.find_key_index(spec.kind), registry.Unknown):
        near = nearest(spec.kind, (name.partition("/")[0] for name in registry.key_index_names()))
        raise Invalid(
            f"unknown key index {text!r}",
            hint=near or f"use one of {available}, or install the package that provides it",
        )
    name = find(text).name
    return str(replace(spec, kind=_SHORT.get(name, name)))
