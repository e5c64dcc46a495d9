"""User metadata of commits, such as ``t.upsert(rows, metadata={"run": "nightly-7"})``.

The metadata given to a method apply to every commit that it makes in its thread, also by table
services. A context variable carries them, so that no function needs to pass them on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

from mdt.arguments import mapping, shown
from mdt.errors import Invalid
from mdt.limits import METADATA_BYTES_MAX, TEXTS_MAX
from mdt.metadata.log.trusted_names import is_metadata, is_reserved

CommitMetadata = Mapping[str, str] | None
"""Names and texts that are stored with a commit."""

_Method = TypeVar("_Method", bound=Callable[..., Any])
_NOTHING: Mapping[str, str] = {}
_current: ContextVar[Mapping[str, str]] = ContextVar("metadata of commits", default=_NOTHING)


def current() -> Mapping[str, str]:
    """Return the metadata for commits of this thread."""
    return _current.get()


@contextmanager
def annotating(metadata: CommitMetadata) -> Iterator[None]:
    """Attach ``metadata`` to the commits of the block. None or an empty mapping changes nothing.

    Raises Invalid for names or values that are not text, for names reserved by Hudi or mdt, and for
    metadata above the size limits.

    >>> with annotating({"run": "nightly-7"}):
    ...     current()
    {'run': 'nightly-7'}
    """
    token = _current.set(_validate(metadata) or current())
    try:
        yield
    finally:
        _current.reset(token)


def takes_metadata(method: _Method) -> _Method:
    """Decorate a method so that its commits carry its ``metadata`` argument."""

    @wraps(method)
    def annotated(*args: Any, **named: Any) -> Any:
        with annotating(named.get("metadata")):
            return method(*args, **named)

    return annotated  # type: ignore[return-value]


def _validate(metadata: object) -> dict[str, str]:
    entries = dict(mapping("metadata", metadata))
    for name, text in entries.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise Invalid(
                f"metadata must map strings to strings, not {shown(name)} to {shown(text)}",
                hint="convert names and values with str(value)",
            )
        if is_reserved(name):
            raise Invalid(
                f"metadata: the name {shown(name)} is reserved by Hudi or mdt",
                hint="use another name, such as 'run'",
            )
    if not is_metadata(entries):
        raise Invalid(
            f"the metadata of a commit have {len(entries):,} entries with"
            f" {sum(map(len, (*entries, *entries.values()))):,} characters",
            hint=(
                f"use at most {TEXTS_MAX} entries and {METADATA_BYTES_MAX:,} bytes of Unicode, with"
                " printable names"
            ),
        )
    return entries
