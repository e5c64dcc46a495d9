"""Key indexes of a table, by their specifications: ``bloom``, ``record``, or one of any package
such as ``cuckoo(bits='12')``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from indexes import registry
from indexes.base import TABLE, KeyIndex
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
"""The indexes of this package are kept by their short names, as tables have always had them."""

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

    ``options``: for a Bloom index whose specification does not say.  ``packages``: index name ->
    package that had it. Raises Unsupported, naming the package, if this process has no such index.
    """
    spec = registry.parse_spec(text)
    found = registry.find_key_index(spec.kind)
    if isinstance(found, registry.Unknown):
        package = (packages or {}).get(spec.kind)
        hint = "install the package that has it"
        if package:
            hint = f"install the package {package}, which had it"
        raise Unsupported(
            f"the key index {text!r} is not available: {found.reason}",
            hint=f"{hint}; reading does without",
        )
    given = dict(spec.options)
    if found.name == _BLOOM and options:
        given = {**_bloom_options(options), **given}
    try:
        return found(**given)
    except (TypeError, ValueError) as error:
        raise Invalid(
            f"the key index {text!r} cannot be used: its options are not possible: {error}"
        ) from error


def keys_for(key_index: str, texts: pa.Array, ordered: pa.Array) -> pa.Array:
    """Return what a key index gets of n keys: their ``texts`` if it says so, else what puts them in
    order.
    """
    found = registry.find_key_index(registry.parse_spec(key_index).kind)
    if isinstance(found, registry.Unknown) or not found.by_text:
        return ordered
    return texts


def is_kept_in_table(key_index: str) -> bool:
    """Return whether commits carry key parts of a key index; of one that this process does not
    have, they may.
    """
    found = registry.find_key_index(registry.parse_spec(key_index).kind)
    return isinstance(found, registry.Unknown) or found.kept == TABLE


def chosen(key_index: object, scope: object, options: Options) -> tuple[object, object]:
    """Return the key index and the scope of a new table: as given, else as Hudi's index type says,
    else bloom and partition.

    Raises Invalid if what is given contradicts the index type.
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
    """Return the specification of a table's key index with the buckets that options of Hudi's give.

    Raises Invalid if there are none in it, if it says something else, or for fields that are no
    columns of ``key``.
    """
    spec, given = registry.parse_spec(key_index), _bucket_options(options)
    if not has_buckets(key_index):
        if given:
            raise Invalid(
                f"the key index {key_index!r} has no buckets",
                hint="write key_index='bucket', or leave their options out",
            )
        return key_index
    for name, value in given.items():
        if spec.options.get(name, value) != value:
            raise Invalid(
                f"the key index {key_index!r} and the options say different {name}",
                hint="give one of them",
            )
    found = {**spec.options, **given}
    in_keys = {name: avro_name(name) for name in (*map(avro_name, key), *key)}
    fields = [
        name.strip() for name in found.pop("fields", ",".join(map(avro_name, key))).split(",")
    ]
    if not set(fields) <= in_keys.keys():
        raise Invalid(
            f"a bucket is chosen by columns of the key ({', '.join(key)}), not {', '.join(fields)}",
            hint="leave the fields out",
        )
    if len(key) > 1:
        found["fields"] = ",".join(in_keys[name] for name in fields)
    return named(str(replace(spec, options=found)))


def has_buckets(key_index: str) -> bool:
    """Return whether a specification is one of the key index bucket."""
    return _kind(key_index) == "bucket"


def bucket_rules(key_index: str) -> tuple[str, int] | None:
    """Return the rules by which partitions have other numbers of buckets, and the number of all
    others; None: there are no rules.
    """
    rules = registry.parse_spec(key_index).options.get("partitions")
    if not has_buckets(key_index) or rules is None:
        return None
    return rules, cast("BucketKeyIndex", find(key_index)).count


def is_bloom(key_index: str) -> bool:
    """Return whether a specification is one of the key index bloom."""
    return _kind(key_index) == "bloom"


def _kind(key_index: str) -> str:
    """Return the kind that a specification names, without its version."""
    return registry.parse_spec(key_index).kind.partition("/")[0]


def _bucket_options(options: Options) -> dict[str, str]:
    given = {
        "buckets": str(options.bucket_count or ""),
        "fields": options.bucket_fields,
        "partitions": options.bucket_partitions,
    }
    return {name: value for name, value in given.items() if value}


def check(options: Options, key_index: str, scope: str) -> None:
    """Raise Invalid if options that a table is opened with name another key index, scope or number
    of buckets than it has.
    """
    if options.index_type:
        _agree(options, key_index, scope)
    known = registry.parse_spec(key_index).options
    for name, value in _bucket_options(options).items():
        if not has_buckets(key_index) or known.get(name, value) != value:
            raise Invalid(
                f"the table's key index is {key_index!r}, so {name} cannot be {value}",
                hint="leave the option out",
            )


def _agree(options: Options, key_index: str, scope: str) -> None:
    kind, hudi_scope = INDEX_TYPES[options.index_type]
    if _kind(key_index) != kind or scope != hudi_scope:
        raise Invalid(
            f"the index type {options.index_type} is key_index={kind!r} with scope={hudi_scope!r},"
            f" not {key_index!r} with {scope!r}",
            hint="give one of the two; key index and scope are fixed at creation",
        )


def _bloom_options(options: Options) -> dict[str, str]:
    """Return what a Bloom index is told of the table's options."""
    ranges = ("tree" if options.bloom_tree else "list") if options.bloom_ranges else "none"
    threads = options.bloom_parallelism or options.threads("writer")
    return {
        "fpp": str(options.bloom_fpp),
        "ranges": ranges,
        "caching": str(options.bloom_caching).lower(),
        "threads": str(min(threads, THREADS_MAX)),
        "pairs": str(options.bloom_pairs),
    }


def named(text: object) -> str:
    """Return the specification ``text`` as a table keeps it: with the persisted name of its class,
    version included.

    Raises Invalid for text that does not parse, an unknown kind or impossible options.
    """
    if not isinstance(text, str):
        raise Invalid(
            f"key_index is a {type(text).__name__}",
            hint="give the name of a key index, such as 'bloom'",
        )
    try:
        spec = registry.parse_spec(text)
    except ValueError as error:
        raise Invalid(str(error)) from error
    known = ", ".join(registry.key_index_names())
    if spec.columns:
        raise Invalid(
            f"the key index {text!r} names a column",
            hint="a key index is one of the record key; leave it out",
        )
    if isinstance(registry.find_key_index(spec.kind), registry.Unknown):
        raise Invalid(
            f"key_index={text!r} is not possible",
            hint=f"give one of {known}, or install the package that has it",
        )
    name = find(text).name
    return str(replace(spec, kind=_SHORT.get(name, name)))
