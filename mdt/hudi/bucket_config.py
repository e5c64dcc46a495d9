"""Hudi's file that says how many buckets the partitions of a table have (its RFC 89,
``PartitionBucketIndexHashingConfig``).
"""

from __future__ import annotations

import json

PATH = ".hoodie/.bucket_index/partition_bucket_index_meta/configs/00000000000000.hashing_config"
"""That of the table's creation, whose instant is fourteen zeros."""
_VERSION = 1


def encode(expressions: str, buckets: int) -> bytes:
    """Return the content: rules as Hudi writes them, ``expression,number;expression,number``, and
    how many buckets all other partitions have.

    >>> json.loads(encode("-06-,16", 4))["expressions"]
    '-06-,16'
    """
    told = {
        "expressions": expressions,
        "defaultBucketNumber": buckets,
        "rule": "regex",
        "version": _VERSION,
    }
    return json.dumps({**told, "instant": PATH.rpartition("/")[2].partition(".")[0]}).encode()
