"""Hudi's indexes of record keys: which file groups have the rows of a key.

The record index has the file group of each record key, in the whole table or in each partition. A
secondary index has the record keys of each value of a column. Both are trusted only if their
number of records is the number of rows: then no key is missing, and none is in several rows.

Sources: Apache Hudi, ``HoodieMetadataPayload.java``, ``SecondaryIndexKeyUtils.java``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt, Missing, Unsupported
from mdt.hudi.index_definitions import DEFINITIONS, DEFINITIONS_PROPERTY
from mdt.hudi.partitions import unescape
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.fields import Fields, parse_json
from mdt.hudi.read.hfile import HFile
from mdt.hudi.read.index_partition import Decode, IndexGroup, IndexPartition, newest_rows
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_records import decode_records
from mdt.hudi.read.metadata_state import MetadataTable, load_metadata_table
from mdt.hudi.read.table_properties import TableProperties
from mdt.limits import HEADER_JSON_BYTES_MAX, INDEX_CHANGES_MAX, SECONDARY_KEYS_MAX
from mdt.stores.contract import is_path
from mdt.stores.storage import Storage

RECORD_INDEX = "record_index"
SECONDARY_INDEX = "secondary_index_"
"""Beginning of the partitions of secondary indexes."""
_NAME = re.compile(r"secondary_index_\w[\w.-]{0,99}", re.ASCII)
_BY_KEY, _BY_VALUE = ("V1", ""), "V2"
"""Versions of secondary indexes that are distributed by the whole key, and by the value. Older
definitions have no version.
"""
WHOLE_TABLE = "record-index"
"""Beginning of the names of file groups of a record index of the whole table. Those of a
partitioned one go on with the escaped path of a partition.
"""
SEPARATOR = "$"
"""Stands between the value and the record key in the keys of a secondary index."""
_VALUE = re.compile(r"(?:\\.|[^\\$])*\$", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def load_key_indexes(objects: Storage) -> KeyIndexes | None:
    """Return the indexes of record keys of a table, or None if it has none, or if they cannot be
    read.
    """
    try:
        table = load_properties(objects)
        if RECORD_INDEX not in table.metadata_partitions:
            return None
        data = load_timeline(objects, table)
        metadata = load_metadata_table(objects)
        if metadata is None:
            return None
        return KeyIndexes(objects, metadata, data, load_secondary_indexes(objects, table))
    except (Corrupt, Unsupported):
        return None


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """The definition of a secondary index.

    Attributes:
        name: Its partition in the metadata table.
        column: The indexed column.
        version: Hudi's version of it.
    """

    name: str
    column: str
    version: str

    @property
    def is_known(self) -> bool:
        """True if it is known how its keys are distributed over file groups."""
        return self.version in (*_BY_KEY, _BY_VALUE)

    def hashed(self, keys: Iterable[str]) -> list[str]:
        r"""Return the parts of keys that are hashed: whole keys, or values with the separator.

        >>> SecondaryIndex("secondary_index_v", "v", "V2").hashed([r"a\$b$k1", "7$"])
        ['a\\$b$', '7$']
        """
        if self.version != _BY_VALUE:
            return list(keys)
        return [key[: _value_end(key) + 1] for key in keys]


def load_definitions(objects: Storage, table: TableProperties) -> Fields:
    """Return Hudi's definitions of indexes by name, none if there is no file. Raises Corrupt."""
    path = table.stored.get(DEFINITIONS_PROPERTY) or DEFINITIONS
    if not is_path(path):
        raise Corrupt(f"{DEFINITIONS_PROPERTY}={path[:200]!r} is not a path in the table")
    try:
        data = objects.read_whole(path, HEADER_JSON_BYTES_MAX)
    except Missing:
        return Fields({}, path)
    return parse_json(data, path).map("indexDefinitions")


def load_secondary_indexes(objects: Storage, table: TableProperties) -> dict[str, SecondaryIndex]:
    """Return the complete secondary indexes, by column. Raises Corrupt."""
    if not any(name.startswith(SECONDARY_INDEX) for name in table.metadata_partitions):
        return {}
    found = secondary_indexes(table.metadata_partitions, load_definitions(objects, table))
    return {index.column: index for index in found}


def secondary_indexes(partitions: Iterable[str], definitions: Fields) -> list[SecondaryIndex]:
    """Return the secondary indexes among partitions of a metadata table. Raises Corrupt.

    An index without a definition, of several columns, or with a name that Hudi does not give is
    left out.
    """
    indexes = []
    for name in sorted(partitions):
        if not _NAME.fullmatch(name):
            continue
        definition = definitions.record(name)
        if definition is None:
            continue
        columns = definition.texts("sourceFields")
        if len(columns) == 1:
            indexes.append(SecondaryIndex(name, columns[0], definition.text("version")))
    return indexes


class KeyIndexes:
    """The indexes of record keys of a table at one state. Thread-safe.

    Methods raise Corrupt for damaged bytes, Missing for files that another writer has removed, and
    Unsupported.

    Attributes:
        secondary: Column -> its secondary index.
    """

    def __init__(
        self,
        objects: Storage,
        metadata: MetadataTable,
        data: Timeline,
        secondary: Mapping[str, SecondaryIndex],
    ) -> None:
        self.secondary = secondary
        self._problem = metadata.problem(data)
        self._problems: dict[str, str] = {}
        self._open = partial(IndexPartition, objects, metadata, data)
        self._partitions: dict[str, IndexPartition] = {}
        self._counts: dict[str, int] = {}
        self._lock = threading.RLock()

    def count(self, name: str) -> int:
        """Return the number of records of an index. Raises Unsupported for many changes."""
        with self._lock:
            if name not in self._counts:
                decode = decoder(name)
                counts = self._partition(name).each(
                    lambda group: group.count(decode, INDEX_CHANGES_MAX)
                )
                self._counts[name] = sum(counts)
            return self._counts[name]

    def problem(self, name: str) -> str:
        """Return the reason why an index cannot be used, or ""."""
        return self._problem or self._problems.get(name, "")

    @property
    def is_partitioned(self) -> bool:
        """True if the record index has the file groups of each key in each partition."""
        with self._lock:
            return self._partition(RECORD_INDEX).prefixes() != [WHOLE_TABLE]

    def give_up(self, name: str, problem: str) -> None:
        """Do not use an index any more, and forget what was read of it."""
        with self._lock:
            self._problems[name] = problem
            self._partitions.pop(name, None)

    def locate(self, keys: Collection[str], partitions: Collection[str]) -> pa.Table:
        """Return the ``partition`` and ``file_id`` of each of ``keys`` that exists.

        Args:
            partitions: The only partitions of the table that matter.

        Raises Unsupported also if a partitioned index lacks one of ``partitions``.
        """
        texts = sorted(set(keys))
        with self._lock:
            index, parts = self._partition(RECORD_INDEX), list[pa.Table]()
            for prefix in _prefixes(index, partitions):
                numbers = index.numbers(prefix, texts)
                for number in np.unique(numbers).tolist():
                    wanted = [texts[place] for place in np.flatnonzero(numbers == number)]
                    parts.append(_locations(index.group(prefix, number), wanted))
        return pa.concat_tables(parts) if parts else _NO_LOCATIONS

    def record_keys(self, index: SecondaryIndex, values: pa.Array) -> list[str]:
        """Return the record keys of the rows with any of ``values`` in the indexed column.

        Args:
            values: Values of the column's type.

        Raises Unsupported for many keys, and for a type whose form in the index is not known.
        """
        forms = value_forms(values)
        if forms is None:
            raise Unsupported(f"the form of values of type {values.type} in the index is not known")
        keys = dict[str, None]()
        with self._lock:
            partition = self._partition(index.name)
            [prefix] = partition.prefixes()
            for value in escaped(pa.concat_arrays(forms)).to_pylist():
                start = value + SEPARATOR
                groups = list(range(partition.size(prefix)))
                if index.version == _BY_VALUE:
                    groups = partition.numbers(prefix, index.hashed([start])).tolist()
                for group in (partition.group(prefix, number) for number in groups):
                    select = partial(HFile.lookup_prefix, prefix=start.encode())
                    records = group.records(select, decoder(index.name))
                    records = _current(records.filter(pc.starts_with(records["key"], start)))
                    keys |= dict.fromkeys(split_key(key)[1] for key in records["key"].to_pylist())
                    if len(keys) > SECONDARY_KEYS_MAX:
                        raise Unsupported(
                            f"more than {SECONDARY_KEYS_MAX} rows have the values of the filter"
                        )
        return list(keys)

    def records(self, name: str) -> pa.Table:
        """Return all current records of an index, with ``key`` and, in the record index,
        ``partition`` and ``file_id``.
        """
        decode = decoder(name)
        empty = [_NO_LOCATIONS] if name == RECORD_INDEX else []
        with self._lock:
            parts = self._partition(name).each(
                lambda group: _current(group.records(HFile.all, decode))
            )
            return pa.concat_tables([*empty, *parts], promote_options="default")

    def _partition(self, name: str) -> IndexPartition:
        if name not in self._partitions:
            self._partitions[name] = self._open(name)
        return self._partitions[name]


def _prefixes(index: IndexPartition, partitions: Collection[str]) -> list[str]:
    """Return the beginnings of the names of file groups with the keys of some partitions.

    Raises Corrupt, and Unsupported if the index lacks one of them.
    """
    prefixes = index.prefixes()
    indexed = index_partitions(prefixes)
    if not indexed:
        return prefixes
    missing = {*partitions} - indexed.keys()
    if missing:
        raise Unsupported(f"it has no file group for the partition {min(missing)[:200]!r}")
    return [indexed[path] for path in sorted(set(partitions))]


def index_partitions(prefixes: Collection[str]) -> dict[str, str]:
    """Return the partitions of the table whose keys a partitioned record index has -> beginnings of
    the names of their file groups. Empty if the index has the keys of the whole table.

    Raises Corrupt for other names.

    >>> index_partitions(["record-index-day%3D2024%2D01%2D15"])
    {'day=2024-01-15': 'record-index-day%3D2024%2D01%2D15'}
    """
    if list(prefixes) == [WHOLE_TABLE]:
        return {}
    found: dict[str, str] = {}
    for prefix in prefixes:
        head, is_partitioned, path = prefix.partition(f"{WHOLE_TABLE}-")
        if head or not is_partitioned or found.setdefault(unescape(path), prefix) != prefix:
            raise Corrupt(f"unknown file groups {prefix[:200]!r} of the record index")
    return found


def value_forms(values: pa.Array) -> list[pa.Array] | None:
    """Return the texts of values of a column in a secondary index, or None if they are not known.

    Dates are days since 1970 or ISO, so there are two forms of each value.

    >>> [form.to_pylist() for form in value_forms(pa.array([19737, None], pa.date32()))]
    [['19737', None], ['2024-01-15', None]]
    """
    if pa.types.is_string(values.type):
        return [values]
    if pa.types.is_integer(values.type):
        return [values.cast(pa.string())]
    if pa.types.is_date32(values.type):
        return [values.cast(pa.int32()).cast(pa.string()), values.cast(pa.string())]
    return None


def escaped(texts: pa.Array) -> pa.Array:
    r"""Return texts or nulls as parts of keys of a secondary index.

    >>> escaped(pa.array(["a$b", None])).to_pylist() == [r"a\$b", "\0"]
    True
    """
    for special in ("\\", SEPARATOR, "\0"):
        texts = pc.replace_substring(texts, special, f"\\{special}")
    return texts.fill_null("\0")


def split_key(key: str) -> tuple[str | None, str]:
    r"""Return the value and the record key in a key of a secondary index. Raises Corrupt.

    >>> split_key(r"a\$b$k1"), split_key("\0$k1")
    (('a$b', 'k1'), (None, 'k1'))
    """
    end = _value_end(key)
    value, record_key = (_ESCAPED.sub(r"\1", part) for part in (key[:end], key[end + 1 :]))
    return None if key[:end] == "\0" else value, record_key


def _value_end(key: str) -> int:
    """Return the place of the separator in a key of a secondary index. Raises Corrupt."""
    match = _VALUE.match(key)
    if match is None:
        raise Corrupt(f"{key[:200]!r} is not a key of a secondary index")
    return match.end() - 1


# -- decoding of records

_NO_LOCATIONS = pa.table(
    {
        "partition": pa.nulls(0, pa.string()),
        "file_id": pa.nulls(0, pa.string()),
    }
)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES = (8, 13, 18, 23)
_DIGITS = np.array([place for place in range(36) if place not in _DASHES])
"""Places of dashes and digits in the text of a UUID."""


def decoder(name: str) -> Decode:
    """Return the decoding of the records of an index."""
    return _LOCATIONS if name == RECORD_INDEX else _SECONDARY


def _decode_locations(keys: pa.Array, values: pa.StructArray) -> pa.Table:
    """Return the location of each record key. Raises KeyError and ValueError for other records."""
    fields = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    ids = _uuids(fields["fileIdHighBits"], fields["fileIdLowBits"], fields["fileIndex"])
    if "fileIdEncoding" in fields:
        is_text = pc.equal(fields["fileIdEncoding"], 1).fill_null(False)
        ids = pc.if_else(is_text, fields.get("fileId", pa.nulls(len(ids), pa.string())), ids)
    if ids.null_count or fields["partitionName"].null_count:
        raise ValueError("a record has no location")
    return pa.table(
        {
            "key": keys,
            "is_deleted": pa.repeat(False, len(keys)),
            "partition": fields["partitionName"],
            "file_id": ids,
        }
    )


def _uuids(high: pa.Array, low: pa.Array, number: pa.Array) -> pa.Array:
    """Return file ids, string[n], from the halves of UUIDs and a number, or -1 for none."""
    halves = [part.fill_null(0).cast(pa.int64()).to_numpy() for part in (high, low)]
    data = np.stack(halves, axis=1).astype(">i8").view(np.uint8).reshape(-1, 16)
    digits = np.stack([_HEX[data >> 4], _HEX[data & 15]], axis=2).reshape(-1, 32)
    text = np.full((len(data), 36), ord("-"), np.uint8)
    text[:, _DIGITS] = digits
    edges = pa.py_buffer(np.arange(0, text.size + 1, 36, dtype=np.int32))
    ids = pa.StringArray.from_buffers(len(data), edges, pa.py_buffer(text.tobytes()))
    numbered = pc.binary_join_element_wise(ids, number.cast(pa.string()), "-")
    return pc.if_else(pc.less(number, 0), ids, numbered)


def sampled_times(file: HFile, schema: str) -> pa.Array:
    """Return the instants of some records of a record index, in milliseconds since 1970, int64[n].

    The time zone in which Hudi's writers have read the instants is that of their machines, unless
    the properties of the table say that it is UTC.

    Args:
        schema: Avro schema of its records.

    Raises Corrupt, Missing, and Unsupported.
    """
    records = decode_records(file.sample(), schema, file.path, [_LOCATIONS.field])
    values = plain(records[_LOCATIONS.field])
    if values.null_count:  # Arrow would abort the process if a field is a union
        raise Corrupt("a record has no location", path=file.path)
    try:
        return pc.struct_field(values, "instantTime").cast(pa.int64())
    except (KeyError, pa.ArrowException) as error:
        raise Corrupt(f"unknown records: {str(error)[:200]}", path=file.path) from error


def _decode_secondary(keys: pa.Array, values: pa.StructArray) -> pa.Table:
    is_deleted = pc.struct_field(values, "isDeleted")
    if is_deleted.null_count:
        raise ValueError("a record does not say if it is deleted")
    return pa.table({"key": keys, "is_deleted": is_deleted})


_LOCATIONS = Decode("recordIndexMetadata", _decode_locations)
_SECONDARY = Decode("SecondaryIndexMetadata", _decode_secondary)


def _current(records: pa.Table) -> pa.Table:
    """Return the last record of each key, without those that delete it."""
    records = records.take(newest_rows(records))
    return records.filter(pc.invert(records["is_deleted"]))


def _locations(group: IndexGroup, keys: list[str]) -> pa.Table:
    """Return the locations of ``keys`` in a file group of the record index."""
    encoded = [key.encode() for key in keys]
    records = group.records(lambda file: file.lookup(encoded), _LOCATIONS)
    records = records.filter(pc.is_in(records["key"], pa.array(keys, pa.string())))
    records = _current(records)
    return records.select(_NO_LOCATIONS.column_names) if len(records) else _NO_LOCATIONS
