"""The grammar of stored names: instants, transactions, tokens, partition paths and file names."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

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
    re.escape(paths.ATTACHMENTS_DIR) + r"/([0-9]{17})/([0-9]{1,10})[0-9-]{0,64}\.attached"
)

IMPORT = "import"
"""The action of records with files that other writers wrote."""
UPGRADE = "upgrade"
"""The action of records that change Hudi's table version."""
NO_INSTANTS = ("rollback", "index", "tag", IMPORT, UPGRADE)
"""Actions that are not Hudi commits. Tag and index records may create other instants."""
ADOPT = "adopt"
"""The operation of a record 0 that adopts a table of another Hudi writer."""
ACTIONS = frozenset(
    (
        "create",
        "commit",
        "deltacommit",
        "compaction",
        "replacecommit",
        IMPORT,
        "rollback",
        "index",
        "clean",
        "tag",
        UPGRADE,
    )
)
"""The actions of commit records."""
KNOWN_MAX = 1 << 14
"""Number of names whose validation is cached.  Every checkpoint has all tags of a table."""


def is_number(value: Any, low: int, high: int) -> bool:
    """Return True if ``value`` is an integer from ``low`` to ``high``.  Booleans are not integers
    here.
    """
    return type(value) is int and low <= value <= high


def is_txn(value: Any) -> bool:
    """Return True if ``value`` is a transaction id."""
    return isinstance(value, str) and _TXN.fullmatch(value) is not None


def is_reserved(name: str) -> bool:
    """Return True if Hudi or this package uses ``name`` for metadata of a completed instant.

    >>> [name for name in ("run", "schema", "Hoodie.x", "mdt.seq") if is_reserved(name)]
    ['schema', 'Hoodie.x', 'mdt.seq']
    """
    return name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES)


def is_metadata(value: Any) -> bool:
    """Return True if ``value`` is valid user metadata of a commit.

    It is an object of at most TEXTS_MAX texts and METADATA_BYTES_MAX bytes, with printable names
    that are not reserved.
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
    """Return True if ``value`` could be the name of an operation."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def is_instant(value: Any) -> bool:
    """Return True if ``value`` is an instant: 17 digits that form a valid time."""
    return isinstance(value, str) and len(value) == timeline.INSTANT_DIGITS and _is_time(value)


@memo(KNOWN_MAX)
def _is_time(text: str) -> bool:
    try:
        timeline.instant_us(text)
    except Invalid:
        return False
    return True


def is_token(value: Any) -> bool:
    """Return True if ``value`` is the middle number of a write token."""
    return is_number(value, 0, TOKEN_MAX)


def is_partition(value: Any) -> bool:
    """Return True if ``value`` is a valid partition path: below the root and outside
    ``.hoodie``.
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
    """Return True if ``path`` is a partition path followed by the name of a base or log file."""
    if not isinstance(path, str):
        return False
    partition, _, name = path.rpartition("/")
    if paths.is_merged(name):
        partition = partition.removeprefix(paths.MERGED_DIR).removeprefix("/")
    if not is_partition(partition) or token_of(name) is None:
        return False
    return path == paths.data_file(partition, name)


def token_of(name: str) -> int | None:
    """Return the transaction's token in the name of a data file.

    None for other names and for files of other writers.

    >>> token_of("a-0_3-77-0_20240101000000000.parquet")
    77
    >>> token_of(".a-0_20240101000000000.log.1_3-77-0")
    77
    >>> token_of(paths.merged_name("a-0", "77-0b1c", "20240101000000000"))
    77
    """
    parsed = file_names.parse_base(name) or file_names.parse_log(name)
    if paths.is_merged(name):
        parsed = file_names.parse_base(name, file_names.ANY_BASE)
    if parsed is None:
        return None
    middle = parsed.token.partition("-")[2].partition("-")[0]
    if not middle.isdigit() or len(middle) > len(str(TOKEN_MAX)):
        return None
    return int(middle)


def instant_of(name: str) -> str | None:
    """Return the instant of the transaction that wrote a base file, or None for any other name.

    Names of log files do not have it.
    """
    base = file_names.parse_base(name)
    if base is None:
        return None
    return base.instant


def stored_of(path: Any) -> tuple[str, int] | None:
    """Return (instant, token) of the transaction that wrote an attachment, or None for any other
    path.
    """
    if not isinstance(path, str) or (match := _ATTACHMENT.fullmatch(path)) is None:
        return None
    return match[1], int(match[2])


class Writer(NamedTuple):
    """The transaction that wrote an object, as far as the path of the object names it."""

    instant: str | None
    token: int | None


def writer_of(path: str) -> Writer:
    """Return the writer of a data file or attachment. Other paths name none.

    >>> writer_of("city=a/a-0_3-77-0_20240101000000000.parquet")
    Writer(instant='20240101000000000', token=77)
    """
    stored, name = stored_of(path), path.rpartition("/")[2]
    if stored is not None:
        return Writer(*stored)
    if paths.is_hudis(path) and not path.startswith(f"{paths.MERGED_DIR}/"):
        return Writer(None, None)
    return Writer(instant_of(name), token_of(name))


def is_written_by(path: str, instant: str, token: int | None) -> bool:
    """Return True if the path of an object names this token and, if it names an instant, this
    instant.
    """
    writer = writer_of(path)
    is_known = writer.token is not None and writer.token == token
    return is_known and writer.instant in (None, instant)
