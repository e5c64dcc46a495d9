"""Records of the partitions ``secondary_index_<name>`` of Hudi's metadata table.

There is a record for each row of the table. Its key is the value of the indexed column and the
record key, and it has no other content (Apache Hudi, ``SecondaryIndexKeyUtils.java``).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Unsupported
from mdt.hudi.hfile_writing import KEY_BYTES_MAX
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.hfile_format import ENTRIES
from mdt.hudi.read.key_indexes import SEPARATOR, escaped, value_forms

VALUE = b"\0\x0e\0\2\0"
"""The value of each record: no key, which the entry has, the type, no names, and not deleted."""


def supports(type: pa.DataType) -> bool:
    """Return True if the form of values of ``type`` in the keys is known.

    >>> supports(pa.int64()), supports(pa.float64())
    (True, False)
    """
    return value_forms(pa.nulls(0, type)) is not None


def keys(rows: pa.Table) -> list[pa.Array]:
    r"""Return the keys of rows of a supported type, string[n]: as Hudi 1.2 writes them on Spark,
    and in other forms that an index may have.

    Args:
        rows: ``key`` and ``value``, n rows.

    >>> keys(pa.table({"key": ["k$1"], "value": pa.array([-7])}))[0].to_pylist() == [r"-7$k\$1"]
    True
    """
    forms = value_forms(plain(rows["value"]))
    assert forms is not None, "a supported type"
    record_keys = escaped(plain(rows["key"]))
    return [pc.binary_join_element_wise(escaped(form), record_keys, SEPARATOR) for form in forms]


def entries(keys: pa.Array) -> pa.RecordBatch:
    """Return the entries of keys, unsorted.

    Raises Unsupported for a key that is too long.
    """
    data = keys.cast(pa.large_binary())
    if (pc.max(pc.binary_length(data)).as_py() or 0) > KEY_BYTES_MAX:
        raise Unsupported(f"secondary indexes of Hudi have no keys of over {KEY_BYTES_MAX:,} bytes")
    return pa.record_batch(
        [data, pa.repeat(pa.scalar(VALUE, pa.large_binary()), len(data))], schema=ENTRIES
    )
