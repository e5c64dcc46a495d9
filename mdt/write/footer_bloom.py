"""Hudi's Bloom filter of a base file's keys, for its footer."""

from __future__ import annotations

import pyarrow as pa

from indexes import hudi_bloom
from mdt.config import Options


def footer_bloom(keys: pa.Array, options: Options) -> bytes:
    """Return the filter of record keys, string[n], in the form and with the false positives that the options say."""
    if options.bloom_filter_type == hudi_bloom.DYNAMIC_V0:
        text = hudi_bloom.dynamic_v0(keys, options.bloom_entries, options.bloom_fpp, options.bloom_entries_max)
    else:
        text = hudi_bloom.simple(keys, max(1, len(keys)), options.bloom_fpp)
    return text.encode("ascii")
