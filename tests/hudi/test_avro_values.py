"""Columns in Avro's binary encoding, which equals fastavro's encoding of each value."""

from __future__ import annotations

from io import BytesIO

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mdt.hudi import avro_values


def fastavro_bytes(value, schema) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_longs_are_encoded_as_by_fastavro(values):
    encoded_values = avro_values.longs(np.array(values, np.int64)).to_pylist()
    assert encoded_values == [fastavro_bytes(value, "long") for value in values]


@given(st.lists(st.text()), st.integers(0, 3))
def test_texts_are_encoded_as_by_fastavro(values, offset):
    texts = pa.array(values, pa.string()).slice(offset)
    assert avro_values.texts(texts).to_pylist() == [
        fastavro_bytes(v, "string") for v in values[offset:]
    ]


def test_edges_of_a_slice_are_offsets_into_the_buffer_of_the_whole_array():
    values = pa.array([b"a", b"bcd", b"", b"ef"], pa.large_binary())
    assert avro_values.edges(values.slice(1, 2)).tolist() == [1, 4, 4]
    assert avro_values.edges(values.slice(4)).tolist() == [6]
