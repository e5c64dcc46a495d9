r"""Java ``.properties`` text for ``hoodie.properties`` and ``.hoodie_partition_metadata``.

The syntax is that of ``java.util.Properties`` (ISO 8859-1, backslash escapes, ``\uXXXX``, continued
lines). Output is sorted by key and has no date, so equal properties give equal bytes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping

from mdt.errors import Corrupt, Unsupported

CHECKSUM = "hoodie.table.checksum"
DATABASE = "hoodie.database.name"
NAME = "hoodie.table.name"
TYPE = "hoodie.table.type"
VERSION = "hoodie.table.version"
LAYOUT = "hoodie.timeline.layout.version"
CREATE_SCHEMA = "hoodie.table.create.schema"
TIME_ZONE = "hoodie.table.timeline.timezone"
ENCODES_PATHS = "hoodie.datasource.write.partitionpath.urlencode"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
"""The partitions of the metadata table that are complete."""
PENDING_METADATA_PARTITIONS = f"{METADATA_PARTITIONS}.inflight"

DECISIVE = (
    NAME,
    TYPE,
    "hoodie.compaction.payload.class",
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.populate.meta.fields",
    "hoodie.table.base.file.format",
    CREATE_SCHEMA,
    "hoodie.table.keygenerator.class",
    "hoodie.table.partition.fields",
    "hoodie.table.precombine.field",
    "hoodie.table.recordkey.fields",
)
"""Properties that determine how the files of a table are read. They never change."""

_LAYOUT_OF_VERSION = {"6": "1", "8": "2", "9": "2"}
_ESCAPES = {
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
    "\\": "\\\\",
    ":": "\\:",
    "=": "\\=",
    "#": "\\#",
    "!": "\\!",
}
_UNESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|u|(.))", re.DOTALL)
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*+)[ \t\f]*+[=:]?+[ \t\f]*+(.*)", re.DOTALL)
"""Key, separator, value."""
_LINE = re.compile(r"\r\n|\r|\n")


def encode(properties: Mapping[str, str]) -> bytes:
    """Return ``properties`` as Java properties text, sorted by key."""
    lines = (
        f"{_escape(key, is_key=True)}={_escape(properties[key])}\n" for key in sorted(properties)
    )
    return "".join(lines).encode("ascii")


def decode(data: bytes) -> dict[str, str]:
    r"""Return the properties in ``data``. A repeated key has its last value, as in Java.

    Raises Corrupt if an escape is malformed.

    >>> decode(encode({"hoodie.table.name": "trips", "a:b": "x=y\n"}))
    {'a:b': 'x=y\n', 'hoodie.table.name': 'trips'}
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _ENTRY.fullmatch(line)
        assert match is not None, "every part of an entry may be empty"
        key, value = match.groups()
        properties[_unescape(key)] = _unescape(value)
    return properties


def checksum(database: str, table: str) -> str:
    """Return Hudi's checksum of a table's identity: CRC-32 of ``<database>.<table>`` in decimal.

    >>> checksum("default", "v6_trips_8i3d"), checksum("", "trips")
    ('3180720914', '3761586722')
    """
    return str(zlib.crc32(f"{database}.{table}".encode()))


def verify(properties: Mapping[str, str]) -> None:
    """Check that ``properties`` can describe a table.

    Raises Corrupt if a required property is missing or the checksum is wrong. Raises Unsupported
    for an unknown table version, timeline layout or table type. A missing checksum is accepted,
    because Hudi before 0.11 wrote none.
    """
    for key in (NAME, TYPE, VERSION, LAYOUT):
        if not properties.get(key):
            raise Corrupt(f"hoodie.properties has no value for {key}")
    expected = checksum(properties.get(DATABASE, ""), properties[NAME])
    actual = properties.get(CHECKSUM, expected)
    if actual != expected:
        raise Corrupt("the checksum of hoodie.properties is wrong", expected=expected, got=actual)
    if properties[TYPE] not in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        raise Unsupported(f"unknown table type {properties[TYPE]!r}")
    if _LAYOUT_OF_VERSION.get(properties[VERSION]) != properties[LAYOUT]:
        raise Unsupported(
            f"table version {properties[VERSION]} with timeline layout {properties[LAYOUT]} is not"
            " known",
            hint="known are version 6 with layout 1, and versions 8 and 9 with layout 2",
        )


def partition_metadata(instant: str, depth: int) -> bytes:
    """Return ``.hoodie_partition_metadata`` of a partition created by ``instant``.

    Args:
        depth: Number of directory levels below the table.

    >>> decode(partition_metadata("20240229120000123", 2))
    {'commitTime': '20240229120000123', 'partitionDepth': '2'}
    """
    return b"#partition metadata\n" + encode({"commitTime": instant, "partitionDepth": str(depth)})


def _escape(text: str, *, is_key: bool = False) -> str:
    body = "".join(map(_escape_char, text))
    if is_key:
        return body.replace(" ", "\\ ")
    return f"\\{body}" if body.startswith(" ") else body


def _escape_char(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments, blank lines, leading blanks and line continuations."""
    pending = ""
    for natural in _LINE.split(text):
        line = natural.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPED.sub(_unescape_one, text)
    try:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise Corrupt(f"half a surrogate pair in the properties text {text[:60]!r}") from error


def _unescape_one(match: re.Match[str]) -> str:
    digits, char = match.groups()
    if digits:
        return chr(int(digits, 16))
    if char is None:
        raise Corrupt(f"malformed \\uXXXX escape in the properties text {match.string[:60]!r}")
    return _UNESCAPES.get(char, char)
