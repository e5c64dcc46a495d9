"""Literals and patterns that would take disproportionate time or memory to evaluate are refused."""

import time

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from indexes.keys.bucket import RULES_CHARACTERS_MAX, BucketKeyIndex
from mdt.errors import Invalid
from mdt.filters.where import parse_where
from mdt.limits import LIKE_CHARACTERS_MAX, LIKE_WILDCARDS_MAX, LITERAL_BYTES_MAX
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("s string, b binary")


@pytest.mark.parametrize("op", ["like", "not like"])
@pytest.mark.parametrize("unit", ["%a", "_", "_%"])
def test_patterns_with_too_many_wildcards_are_refused(op, unit):
    pattern = unit * (LIKE_WILDCARDS_MAX + 1)
    with pytest.raises(Invalid, match="wildcards, and the limit is 64"):
        parse_where(f"s {op} :p", SCHEMA, {"p": pattern})
    with pytest.raises(Invalid, match="wildcards"):
        parse_where(f"s {op} '{unit * 2_000}'", SCHEMA)
    parse_where(f"s {op} :p", SCHEMA, {"p": "%a" * LIKE_WILDCARDS_MAX + r"\%" * 100})
    parse_where(f"s {op} :p", SCHEMA, {"p": "%" * 2_000})


@pytest.mark.parametrize(
    "text",
    [
        "s = :p",
        "s in (:p, 'a')",
        "s >= :p",
        "b = :p",
        "match(s, :p)",
        "s like :p",
        "startswith(s, :p)",
    ],
)
def test_values_of_many_megabytes_are_refused(text):
    size = 10 * LITERAL_BYTES_MAX
    with pytest.raises(Invalid, match="the limit is"):
        parse_where(text, SCHEMA, {"p": bytes(size) if text.startswith("b") else "x" * size})


def test_text_queries_with_too_many_words_are_refused():
    with pytest.raises(Invalid, match=f"the limit is {LIKE_CHARACTERS_MAX:,}"):
        parse_where("match(s, :p)", SCHEMA, {"p": "a " * LIKE_CHARACTERS_MAX})


def test_a_bucket_rule_takes_time_in_proportion_to_the_length_of_the_path():
    index = BucketKeyIndex(4, partitions="(a+)+$,8")
    start_time = time.process_time()
    assert index.buckets_of("a" * 200 + "b") == 4 and index.buckets_of("b" + "a" * 200) == 8
    assert time.process_time() - start_time < 1


def test_bucket_rules_set_the_number_of_buckets_by_partition_path():
    index = BucketKeyIndex(4, partitions=r"-(06|11)-,16;2026,8;\d{3},2")
    paths = ["day=2026-11-24", "day=2026-10-24", "n=123", "n=x", ""]
    assert [index.buckets_of(path) for path in paths] == [16, 8, 2, 4, 4]
    bucket_numbers = index.buckets(
        pa.array([str(n) for n in range(100)]), np.array(["n=x"] * 100, object)
    )
    assert set(bucket_numbers.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (r"(?=a)b,8", "not a valid RE2 regular expression"),
        (r"(a)\1,8", "not a valid RE2 regular expression"),
        ("((a{1000}){1000}){1000},8", "not a valid RE2 regular expression"),
        ("a,8;" * RULES_CHARACTERS_MAX, "the limit is 16,384"),
    ],
)
def test_bucket_rules_that_are_too_long_or_not_re2_are_refused_at_creation(rules, reason):
    schema = columns("id string, p string")
    with pytest.raises(Invalid, match=reason):
        mdt.create(
            MemoryStorage(),
            schema,
            ["id"],
            partition_by=["p"],
            key_index="bucket",
            options={"mdt.bucket.partitions": rules},
        )
