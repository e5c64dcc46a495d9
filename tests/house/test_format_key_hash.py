"""The worked example of FORMAT.md's section 5 is what its steps give, and what tables do."""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path

import pyarrow as pa
from key_hash_reference import multilinear

from indexes.key_hash import MultilinearHash

SECRET = bytes(range(32))
PAGE = (Path(__file__).parents[2] / "FORMAT.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.partition("Example, secret")[2].partition("The hash of a partition's path")[0]


def row(name: str) -> list[int]:
    [line] = re.findall(rf"\| {name} \|(.*)\|\n", EXAMPLE)
    return [int(word, 16) for word in re.findall("`([0-9a-f]{16})`", line)]


def test_the_example_of_the_page_follows_from_its_steps() -> None:
    coefficients = struct.unpack(
        "<136Q", hashlib.shake_256(b"mdt multilinear/1" + SECRET).digest(1120)[:-32]
    )
    assert [row(rf"`c\[{i}\]`") for i in range(3)] == [
        list(coefficients[4 * i : 4 * i + 4]) for i in range(3)
    ]
    assert "`315f6469`" in EXAMPLE and struct.unpack("<I", b"id_1")[0] == 0x315F6469
    sums = [
        (a + 4 * b + 0x315F6469 * c) % 2**64
        for a, b, c in zip(*(row(rf"`c\[{i}\]`") for i in range(3)), strict=True)
    ]
    assert row("sum") == sums


def test_the_hashes_of_the_page_are_those_of_reference_and_product() -> None:
    words = [
        int(word, 16) for word in re.findall("`([0-9a-f]{16})`", EXAMPLE.partition("So `hi`")[2])
    ]
    keys = ["id_1", "x" * 129]
    assert words == [word for key in keys for word in multilinear(SECRET, key.encode())]
    found = MultilinearHash(SECRET).hash(pa.array(keys))
    assert words == [found.hi[0], found.lo[0], found.hi[1], found.lo[1]]
