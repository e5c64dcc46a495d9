r"""``bucket/1``: the hash of a key selects its bucket, and a bucket's keys are in one group.

The bucket of a key is Hudi's: Java's hash of the list of the key's field values, without its sign,
modulo the number of buckets. Writers call :meth:`BucketKeyIndex.buckets` to assign new keys.
Lookups do not rely on that assignment. A key part stores the actual buckets of each group's keys,
so rows written elsewhere by another writer are also found.

Rules may set another number of buckets for some partitions, like Hudi's partition-level bucket
index (RFC 89). The first regular expression that matches a partition's path wins. Key parts then
use the least common multiple of all bucket numbers, which determines the bucket in every partition.

Byte layout, little-endian, without padding:

============  ============================================================================
offset, size  meaning
============  ============================================================================
0, 8          magic ``b"MDTBUC\x00\x01"``, the last byte is the version
8, 8          groups: every group number is smaller
16, 4         uint32: number of buckets, from 1 to 2^24; with rules their least common multiple
20, 4         uint32: p, number of pairs
24, 4 p       uint32: bucket of each pair, ascending
..., 4 p      uint32: group of each pair, ascending for equal buckets; no pair appears twice
..., 4        CRC-32 of everything before
============  ============================================================================
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import distinct_texts, expand_runs, flags
from indexes.base import Candidates, Int64Array, KeyHashes, KeyIndex
from indexes.keys.sealed import check_groups, seal, unseal
from indexes.options import whole_number

BUCKETS_MAX = 1 << 24
"""A file name has eight digits for the bucket. A partition with so many buckets would be
unusable.
"""
RULES_CHARACTERS_MAX = 16_384
"""Every write tests its partitions with all rules."""
_NO_TEXT = pa.array([""])

_MAGIC = b"MDTBUC\x00\x01"
_HEADER = struct.Struct("<8sQII")
_PRIME = 31
"""Multiplier of Java's hashes of strings and lists."""


class BucketKeyIndex(KeyIndex):
    """Buckets by Hudi's hash. 8 bytes per bucket and group. ``locate`` is O(bytes of the keys).

    >>> index = BucketKeyIndex(buckets="4")
    >>> index.buckets(pa.array(["id_1", "id_2", "id_3"]), np.array(["", "", ""], object)).tolist()
    [0, 1, 2]
    """

    name: ClassVar[str] = "bucket/1"
    can_index_log_files: ClassVar[bool] = True
    by_text: ClassVar[bool] = True

    def __init__(self, buckets: int | str = 4, fields: str = "", partitions: str = "") -> None:
        """Set the options.

        Raises ValueError for numbers whose least common multiple is not between 1 and BUCKETS_MAX,
        an empty name, or an invalid rule.

        Args:
            buckets: Number of buckets of a partition.
            fields: Fields of the record key to hash, separated by commas. The default is all of
                them.
            partitions: Rules with other numbers of buckets by partition path:
                ``"expression,buckets;expression,buckets"``.
        """
        self.count = whole_number("buckets", buckets, BUCKETS_MAX)
        self.fields = tuple(name.strip() for name in fields.split(",")) if fields else ()
        if not all(self.fields):
            raise ValueError(f"invalid fields={fields!r}; separate names by single commas")
        self.rules = _parse_rules(partitions)
        self.modulus = math.lcm(self.count, *(count for _, count in self.rules))
        if self.modulus > BUCKETS_MAX:
            raise ValueError(
                f"the least common multiple of {buckets} and the numbers in {partitions!r} exceeds"
                f" {BUCKETS_MAX}; use multiples of each other"
            )

    def buckets_of(self, partition: str) -> int:
        """Return the number of buckets of the partition with this path.

        >>> BucketKeyIndex(4, partitions="-(06|11)-,16;2026,8").buckets_of("day=2026-11-24")
        16
        """
        return int(self._counts([partition])[0])

    def _counts(self, partitions: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Return the number of buckets of each partition -> uint32[n].

        O(length of paths and rules), because RE2 does not backtrack.
        """
        counts, paths = (
            np.full(len(partitions), self.count, np.uint32),
            pa.array(partitions, pa.string()),
        )
        for expression, count in reversed(self.rules):
            counts[flags(pc.match_substring_regex(paths, pattern=expression))] = count
        return counts

    def buckets(self, keys: pa.Array, partition: npt.NDArray[np.object_]) -> Int64Array:
        """See :meth:`indexes.base.KeyIndex.buckets`."""
        count = np.full(len(keys), self.count, np.uint32)
        if self.rules and len(keys):
            paths, path_of_key = distinct_texts(partition)
            count = self._counts(paths)[path_of_key]
        return (_hashes(keys, self.fields) % count).astype(np.int64)

    def build(self, keys: pa.Array, hashes: KeyHashes, group: Int64Array, groups: int) -> bytes:
        """See :meth:`indexes.base.KeyIndex.build`. O(bytes of the keys).

        Raises ValueError for more than 2^32 groups.
        """
        buckets = (_hashes(keys, self.fields) % np.uint32(self.modulus)).astype(np.int64)
        return _encode(_KeyPart(groups, self.modulus, *_unique(buckets, group, groups)))

    def locate(self, key_part: bytes | memoryview, keys: pa.Array, hashes: KeyHashes) -> Candidates:
        """See :meth:`indexes.base.KeyIndex.locate`."""
        part = _open(key_part)
        buckets = (_hashes(keys, self.fields) % np.uint32(part.count)).astype(np.int64)
        first = part.bucket.searchsorted(buckets)
        times = part.bucket.searchsorted(buckets, "right") - first
        key = np.repeat(np.arange(len(buckets)), times)
        return Candidates(key, part.group[expand_runs(first, times)])

    def merge(
        self, key_parts: Sequence[bytes | memoryview], groups: Sequence[Int64Array], total: int
    ) -> bytes:
        """See :meth:`indexes.base.KeyIndex.merge`.

        Raises ValueError for key parts with different numbers of buckets.
        """
        none = np.zeros(0, np.int64)
        pairs, count = [(none, none)], self.modulus
        for number, (key_part, new) in enumerate(zip(key_parts, groups, strict=True)):
            part = _open(key_part)
            if len(new) != part.groups or (number and part.count != count):
                raise ValueError(
                    f"bucket key part: {part.groups} groups and {part.count} buckets do not match"
                    " the other key parts"
                )
            count = part.count
            group = new[part.group]
            pairs.append((part.bucket[group >= 0], group[group >= 0]))
        bucket, group = (np.concatenate(column) for column in zip(*pairs, strict=True))
        return _encode(_KeyPart(total, count, *_unique(bucket, group, total)))


def _parse_rules(text: str) -> list[tuple[str, int]]:
    """Parse rules into (RE2 expression, number of buckets). The first match wins.

    Raises ValueError. Expressions cannot contain commas or semicolons.
    """
    rules = []
    if len(text) > RULES_CHARACTERS_MAX:
        raise ValueError(
            f"partitions has {len(text):,} characters, but the limit is {RULES_CHARACTERS_MAX:,}"
        )
    for rule in filter(None, map(str.strip, text.split(";"))):
        expression, comma, count = rule.partition(",")
        if not comma or not count.strip().isdecimal() or not 1 <= int(count) <= BUCKETS_MAX:
            raise ValueError(
                f"partitions={text!r}: {rule!r} must be an expression, a comma and a number of"
                " buckets"
            )
        try:
            pc.match_substring_regex(_NO_TEXT, pattern=expression.strip())
        except pa.ArrowInvalid as error:
            message = (
                f"{expression.strip()!r} is not a valid RE2 regular expression"
                f" (without lookaround and backreferences): {error}"
            )
            raise ValueError(message[:300]) from error
        rules.append((expression.strip(), int(count)))
    return rules


def java_hashes(texts: pa.Array) -> npt.NDArray[np.uint32]:
    r"""Return Java's ``String.hashCode`` of each text, as unsigned words -> uint32[n]. O(bytes).

    >>> java_hashes(pa.array(["", "a", "hello", "\U0001f600"])).view(np.int32).tolist()
    [0, 97, 99162322, 1772899]
    """
    texts = texts.cast(pa.large_string())
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, 8 * texts.offset)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets - offsets[0]
    if bool((data >= 0x80).any()):
        # Java counts UTF-16 units: two for a four-byte character, else one.
        units_before = np.concatenate(
            [[0], np.cumsum((data & 0xC0 != 0x80).astype(np.int64) + (data >= 0xF0))]
        )
        starts = units_before[starts]
        data = np.frombuffer(
            data.tobytes().decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass"),
            "<u2",
        )
    lengths = np.diff(starts)
    powers = np.ones(int(lengths.max(initial=0)) + 1, np.uint32)
    powers[1:] = _PRIME
    powers = np.multiply.accumulate(powers, dtype=np.uint32)
    behind = np.repeat(starts[1:], lengths) - 1 - np.arange(len(data))
    hashes = np.zeros(len(texts), np.uint32)
    nonempty = lengths > 0
    if len(data):
        hashes[nonempty] = np.add.reduceat(
            data.astype(np.uint32) * powers[behind], starts[:-1][nonempty], dtype=np.uint32
        )
    return hashes


def _hashes(keys: pa.Array, fields: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return Hudi's hash of each record key, without its sign -> uint32[n].

    For a key of several fields, ``f1:v1,f2:v2``, it is the hash of the list of the values of
    ``fields``. For any other key, it is the hash of a list that contains only the key.
    """
    single = np.uint32(_PRIME) + java_hashes(keys)
    total, is_composite = np.ones(len(keys), np.uint32), np.ones(len(keys), np.bool_)
    for name in fields:
        pattern = rf"(?s)(?:^|,){re.escape(name)}:(?P<value>.*?)(?:,[^,:]+:|$)"
        value = pc.struct_field(pc.extract_regex(keys, pattern), [0])
        is_composite &= value.is_valid().to_numpy(zero_copy_only=False)
        total = total * np.uint32(_PRIME) + java_hashes(pc.fill_null(value, ""))
    if fields:
        return np.where(is_composite, total, single) & np.uint32(0x7FFFFFFF)
    return single & np.uint32(0x7FFFFFFF)


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """A verified key part.

    Attributes:
        groups: Limit of group numbers.
        count: Number of buckets.
        bucket, group: int64[p], the pairs.
    """

    groups: int
    count: int
    bucket: Int64Array
    group: Int64Array


def _unique(bucket: Int64Array, group: Int64Array, groups: int) -> tuple[Int64Array, Int64Array]:
    check_groups("bucket", groups)
    pairs = np.unique(bucket * groups + group)
    return pairs // max(groups, 1), pairs % max(groups, 1)


def _encode(part: _KeyPart) -> bytes:
    words = [column.astype(np.dtype("<u4")).tobytes() for column in (part.bucket, part.group)]
    return seal(_HEADER.pack(_MAGIC, part.groups, part.count, len(part.bucket)) + b"".join(words))


def _open(key_part: bytes | memoryview) -> _KeyPart:
    """Verify and decode all of ``key_part``. Raises ValueError."""
    view, (groups, count, pairs) = unseal("bucket", key_part, _HEADER, _MAGIC)
    check_groups("bucket", groups)
    if not 1 <= count <= BUCKETS_MAX or len(view) != _HEADER.size + 8 * pairs:
        raise ValueError(f"bucket key part: {pairs} pairs of {count} buckets in {len(view)} bytes")
    bucket, group = (
        np.frombuffer(view, "<u4", pairs, _HEADER.size + 4 * pairs * i).astype(np.int64)
        for i in (0, 1)
    )
    if pairs and (
        int(group.max()) >= groups
        or int(bucket.max()) >= count
        or bool(np.any(np.diff(bucket) < 0))
    ):
        raise ValueError("bucket key part: the pairs are out of order or out of range")
    return _KeyPart(groups, count, bucket, group)
