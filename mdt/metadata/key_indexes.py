"""Key indexes of a table, by their specifications: ``bloom``, ``record``, or one of any package such as ``cuckoo(bits='12')``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from indexes import registry
from indexes.base import KeyIndex
from mdt.errors import Invalid, Unsupported

_BLOOM = "bloom/1"
_SHORT = {_BLOOM: "bloom", "record/1": "record"}
"""The indexes of this package are kept by their short names, as tables have always had them."""


def find(text: str, *, bloom_fpp: float = 0.01, packages: Mapping[str, str] | None = None) -> KeyIndex:
    """Return the key index of a specification.

    ``bloom_fpp``: for a Bloom filter whose specification does not say.  ``packages``: index name -> package that had it.
    Raises Unsupported, naming the package, if this process has no such index.
    """
    spec = registry.parse_spec(text)
    found = registry.find_key_index(spec.kind)
    if isinstance(found, registry.Unknown):
        package = (packages or {}).get(spec.kind)
        hint = f"install the package {package}, which had it" if package else "install the package that has it"
        raise Unsupported(
            f"the key index {text!r} is not available: {found.reason}", hint=f"{hint}; reading does without"
        )
    try:
        return found(**({"fpp": bloom_fpp} if found.name == _BLOOM and not spec.options else spec.options))
    except (TypeError, ValueError) as error:
        raise Invalid(f"the key index {text!r} cannot be used: its options are not possible: {error}") from error


def named(text: object) -> str:
    """Return the specification ``text`` as a table keeps it: with the persisted name of its class, version included.

    Raises Invalid for text that does not parse, an unknown kind or impossible options.
    """
    if not isinstance(text, str):
        raise Invalid(f"key_index is a {type(text).__name__}", hint="give the name of a key index, such as 'bloom'")
    try:
        spec = registry.parse_spec(text)
    except ValueError as error:
        raise Invalid(str(error)) from error
    known = ", ".join(registry.key_index_names())
    if spec.columns:
        raise Invalid(
            f"the key index {text!r} names a column", hint="a key index is one of the record key; leave it out"
        )
    if isinstance(registry.find_key_index(spec.kind), registry.Unknown):
        raise Invalid(
            f"key_index={text!r} is not possible", hint=f"give one of {known}, or install the package that has it"
        )
    name = find(text).name
    return str(replace(spec, kind=_SHORT.get(name, name)))
