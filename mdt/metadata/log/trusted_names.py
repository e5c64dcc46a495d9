"""The grammar of the names that files of a table hold: instants, transactions, tokens, partition
paths, file names.
"""

from __future__ import annotations

import re
from typing import Any

from mdt.errors import Invalid
from mdt.hudi import file_names, timeline
from mdt.limits import METADATA_BYTES_MAX, NAME_BYTES_MAX, TEXTS_MAX, TOKEN_MAX
from mdt.metadata.files import paths
from mdt.session import memo
from mdt.stores.contract import check_path

_RESERVED = frozenset(("schema", "latest_schema"))
_RESERVED_PREFIXES = ("mdt.", "hoodie.", "_hoodie", "deltastreamer.", "streamer.")
_TXN = re.compile(r"[0-9a-f]{32}")
_WORD = re.compile(r"[a-z][a-z_]{0,63}")
_ATTACHMENT = re.compile(
    re.escape(paths.attachments_dir()) + r"/([0-9]{17})/([0-9]{1,10})[0-9-]{0,64}\.attached"
)

ACTIONS = frozenset(
    (
        "create",
        "commit",
        "deltacommit",
        "compaction",
        "replacecommit",
        "rollback",
        "index",
        "clean",
        "tag",
    )
)
"""What a record of the log can be."""
KNOWN_MAX = 1 << 14
"""Of so many names a process remembers whether they follow the grammar: every checkpoint has all
tags of a table.
"""


def is_number(value: Any, low: int, high: int) -> bool:
    """Return whether ``value`` is an integer, no boolean, from ``low`` to ``high``."""
    return type(value) is int and low <= value <= high


def is_txn(value: Any) -> bool:
    """Return whether ``value`` is the id of a transaction."""
    return isinstance(value, str) and _TXN.fullmatch(value) is not None


def is_reserved(name: str) -> bool:
    """Return whether Hudi, or this package, keeps something of its own under this name in a
    completed instant.

    >>> [name for name in ("run", "schema", "Hoodie.x", "mdt.seq") if is_reserved(name)]
    ['schema', 'Hoodie.x', 'mdt.seq']
    """
    return name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES)


def is_metadata(value: Any) -> bool:
    """Return whether ``value`` is metadata that a user may have given to a commit: few short texts
    under printable names of their own.
    """
    if not isinstance(value, dict) or len(value) > TEXTS_MAX:
        return False
    pairs = list(value.items())
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        return False
    if not all(name and name.isprintable() and not is_reserved(name) for name, _ in pairs):
        return False
    try:
        return sum(len(text.encode()) for pair in pairs for text in pair) <= METADATA_BYTES_MAX
    except UnicodeEncodeError:
        return False


def is_word(value: Any) -> bool:
    """Return whether ``value`` could be the name of an operation."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def is_instant(value: Any) -> bool:
    """Return whether ``value`` is an instant of ours: 17 digits that are a time."""
    return isinstance(value, str) and len(value) == timeline.INSTANT_DIGITS and _is_time(value)


@memo(KNOWN_MAX)
def _is_time(text: str) -> bool:
    try:
        timeline.instant_us(text)
    except Invalid:
        return False
    return True


def is_token(value: Any) -> bool:
    """Return whether ``value`` is the middle number of a write token."""
    return is_number(value, 0, TOKEN_MAX)


def is_partition(value: Any) -> bool:
    """Return whether ``value`` is the path of a partition: below the root, and not among Hudi's own
    files.
    """
    if value == "":
        return True
    if (
        not isinstance(value, str)
        or len(value) > NAME_BYTES_MAX
        or value.split("/", 1)[0] == paths.HUDI
    ):
        return False
    try:
        check_path(value).encode()
    except (Invalid, UnicodeEncodeError):
        return False
    return True


def is_data_file(path: Any) -> bool:
    """Return whether ``path`` is a partition's path and the name of a base or log file."""
    if not isinstance(path, str):
        return False
    partition, _, name = path.rpartition("/")
    return is_partition(partition) and token_of(name) is not None


def token_of(name: str) -> int | None:
    """Return the transaction's token in a data file's name, None for other names and those of other
    writers.

    >>> (
    ...     token_of("a-0_3-77-0_20240101000000000.parquet"),
    ...     token_of(".a-0_20240101000000000.log.1_3-77-0"),
    ...     token_of("x"),
    ... )
    (77, 77, None)
    """
    parsed = file_names.parse_base(name) or file_names.parse_log(name)
    if parsed is None:
        return None
    middle = parsed.token.partition("-")[2].partition("-")[0]
    if not middle.isdigit() or len(middle) > len(str(TOKEN_MAX)):
        return None
    return int(middle)


def instant_of(name: str) -> str | None:
    """Return the instant of the transaction that wrote a base file, None for other names; a log
    file's has none.
    """
    base = file_names.parse_base(name)
    if base is None:
        return None
    return base.instant


def stored_of(path: Any) -> tuple[str, int] | None:
    """Return instant and token of the transaction that wrote an object of key maps and summaries,
    None for other names.
    """
    if not isinstance(path, str) or (found := _ATTACHMENT.fullmatch(path)) is None:
        return None
    return found[1], int(found[2])
