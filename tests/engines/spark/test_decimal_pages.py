"""Decimals that Spark reads as integers: DecimalPages.java rewrites the pages of their bytes."""

import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from sql_tables import settings as settings_of

import mdt
from mdt import create
from mdt.engines.spark import private
from mdt.engines.spark.java_half import factory_of

ROWS = 6000
PRECISIONS = (*range(1, 21), 38)
MONEY = pa.decimal128(12, 2)


def number(draw, type):
    """Return any number of the type, often an outermost one."""
    most = 10**type.precision - 1
    unscaled = draw.choice(
        [most, -most, 0, -1, draw.randint(-most, most), draw.randint(-most, most)]
    )
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -type.scale))


def rows_of(ids, seed):
    """Return rows with a column for each precision, of many values, of few, and inside other
    columns; a tenth of all are null.
    """
    draw = random.Random(seed)
    columns = {"id": pa.array(ids, pa.int64())}

    def some(make):
        return [None if draw.random() < 0.1 else make() for _ in ids]

    for precision in PRECISIONS:
        type = pa.decimal128(precision, precision // 3)
        few = [number(draw, type) for _ in range(5)]
        columns[f"many{precision}"] = pa.array(some(lambda type=type: number(draw, type)), type)
        columns[f"few{precision}"] = pa.array(some(lambda few=few: draw.choice(few)), type)
    fields, small = pa.struct([("a", MONEY), ("b", pa.int32())]), pa.decimal128(5, 1)
    columns["inside"] = pa.array(
        some(lambda: {"a": draw.choice([None, number(draw, MONEY)]), "b": 1}), fields
    )
    columns["several"] = pa.array(
        some(lambda: [draw.choice([None, number(draw, small)]) for _ in range(draw.randint(0, 3))]),
        pa.list_(small),
    )
    columns["named"] = pa.array(
        some(lambda: [("x", number(draw, MONEY))]), pa.map_(pa.string(), MONEY)
    )
    return pa.table(columns)


def assert_read_alike(spark, table, where="true"):
    """Assert that Spark and the process read the same rows."""
    ours = table.scan(where=where).to_arrow().sort_by("id")
    frame = mdt.read(spark, table.path)
    assert frame.where(where).sort("id").toArrow().to_pylist() == ours.to_pylist()
    for name in {"few1", "many12", "several"}.intersection(table.schema.names):
        # alone: other columns may choose the pages
        assert (
            frame.where(where).sort("id").select(name).toArrow()[name].to_pylist()
            == ours[name].to_pylist()
        )


@pytest.mark.parametrize(("rows", "compression"), [(ROWS, "lz4"), (ROWS, "zstd"), (50, "lz4")])
def test_numbers_of_every_precision_are_read(spark, tmp_path, rows, compression):
    data = rows_of(range(rows), seed=rows)
    table = create(
        tmp_path / "t",
        data.schema,
        key=["id"],
        table_type="MERGE_ON_READ",
        options={"mdt.compression": compression},
    )
    table.upsert(data)
    assert_read_alike(spark, table)
    table.upsert(rows_of(range(rows // 2, rows // 2 + 20), seed=1))
    table.delete({"id": list(range(3, rows, 7))})
    assert_read_alike(spark, table)
    assert_read_alike(spark, table, f"id between {rows // 3} and {rows // 3 + 3}")
    assert_read_alike(spark, table, f"few12 = {data['few12'].drop_null()[0]}")
    table.compact()
    assert_read_alike(spark, table)


def test_nulls_alone_and_columns_off_the_heap_are_read(spark, tmp_path):
    data = pa.table(
        {
            "id": range(ROWS),
            "none": pa.nulls(ROWS, MONEY),
            "late": pa.array([None] * (ROWS - 1) + [Decimal("-0.01")], MONEY),
        }
    )
    table = create(tmp_path / "t", data.schema, key=["id"])
    table.upsert(data)
    for said in ({}, {"spark.sql.columnVector.offheap.enabled": "true"}):
        with settings_of(spark, said):
            assert_read_alike(spark, table)


def test_older_files_are_read_in_their_own_precision(spark, tmp_path):
    data = pa.table(
        {
            "id": range(ROWS),
            "m": pa.array([Decimal(n) / 4 for n in range(ROWS)], pa.decimal128(8, 2)),
        }
    )
    table = create(tmp_path / "t", data.schema, key=["id"])
    table.upsert(data)
    table.alter(widen={"m": "decimal(14, 2)"}, beyond_hudi=True)
    table.upsert(
        pa.table({"id": [1], "m": pa.array([Decimal("-123456789012.25")], pa.decimal128(14, 2))})
    )
    assert_read_alike(spark, table)


# -- by itself


@pytest.fixture(scope="module")
def java(spark):
    """The class loader of the Java half."""
    return factory_of(spark.sparkContext).getClass().getClassLoader()


def called(spark, java, of, name, *arguments):
    """Call a static method of a class that is not public."""
    method = next(
        one
        for one in java.loadClass(f"mdt.spark.{of}").getDeclaredMethods()
        if one.getName() == name and len(one.getParameterTypes()) == len(arguments)
    )
    method.setAccessible(True)
    given = private.gateway(spark.sparkContext).new_array(private.jvm(spark).Object, len(arguments))
    for i, argument in enumerate(arguments):
        given[i] = argument
    return method.invoke(None, given)


def test_bytes_become_integers(spark, java):
    buffers = private.jvm(spark).java.nio.ByteBuffer

    @settings(max_examples=60, deadline=None)
    @given(st.data(), st.integers(1, 8), st.binary(max_size=9))
    def check(data, length, levels):
        width = 4 if length <= 4 else 8
        most = 1 << (8 * length - 1)
        numbers = data.draw(st.lists(st.integers(-most, most - 1), max_size=20))
        stored = levels + b"".join(n.to_bytes(length, "big", signed=True) for n in numbers)
        found = called(
            spark,
            java,
            "IntegerPages",
            "integers",
            buffers.wrap(stored),
            len(levels),
            length,
            width,
        )
        expected = levels + b"".join(n.to_bytes(width, "little", signed=True) for n in numbers)
        assert bytes(found.toByteArray()) == expected

    check()


def test_bytes_that_are_no_numbers_of_a_length_are_refused(spark, java):
    buffers = private.jvm(spark).java.nio.ByteBuffer
    for size, levels in ((13, 0), (12, 1), (5, 6)):
        with pytest.raises(
            Py4JJavaError,
            match=f"{size} bytes, the first {levels} of them levels, are not a page of numbers of 6",
        ):
            called(spark, java, "IntegerPages", "integers", buffers.wrap(bytes(size)), levels, 6, 8)


class Reader:
    """Spark's reader of one file, with the pages of DecimalPages."""

    def __init__(self, spark, java, path):
        jvm = private.jvm(spark)
        parquet = jvm.org.apache.spark.sql.execution.datasources.parquet
        self.java = parquet.VectorizedParquetRecordReader(False, 4096)
        self.java.initialize(str(path), None)
        self.java.initBatch(jvm.org.apache.spark.sql.types.StructType(), None)
        self.java.enableReturningBatches()
        iterator = jvm.org.apache.spark.sql.execution.datasources.RecordReaderIterator(self.java)
        conf = jvm.org.apache.hadoop.conf.Configuration()
        file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(
            jvm.org.apache.hadoop.fs.Path(str(path)), conf
        )
        self.file = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(file)
        called(spark, java, "DecimalPages", "before", iterator, self.file)

    def types(self):
        """Return Parquet's types of the columns that are read."""
        field = self.java.getClass().getSuperclass().getDeclaredField("parquetColumn")
        field.setAccessible(True)
        columns = field.get(self.java).children()
        return [
            columns.apply(i).descriptor().get().getPrimitiveType().getPrimitiveTypeName().toString()
            for i in range(columns.size())
        ]

    def numbers(self, column, precision):
        """Yield the values of a column without nulls, their digits."""
        while self.java.nextBatch():
            batch = self.java.resultBatch()
            decimals = (
                batch.column(column).getDecimal(i, precision, 0) for i in range(batch.numRows())
            )
            yield from (decimal.toUnscaledLong() for decimal in decimals)

    def close(self):
        self.java.close()
        self.file.close()


@pytest.fixture
def reader(spark, java, tmp_path):
    """What writes a file and opens it."""
    opened = []

    def made(data, **said):
        path = tmp_path / f"{len(opened)}.parquet"
        pq.write_table(data, path, compression="none", **said)
        opened.append(Reader(spark, java, path))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


def test_the_reader_is_told_of_integers(reader):
    types = {
        "a": pa.decimal128(9, 2),
        "b": pa.decimal128(10, 2),
        "c": pa.decimal128(18, 0),
        "d": pa.decimal128(19, 0),
    }
    data = pa.table(
        {name: pa.array([Decimal(1), Decimal(-2)], type) for name, type in types.items()}
    )
    found = reader(data, use_dictionary=False)
    assert found.types() == ["INT32", "INT64", "INT64", "FIXED_LEN_BYTE_ARRAY"]
    assert list(found.numbers(1, 10)) == [100, -200]
    assert list(reader(data, use_dictionary=True).numbers(2, 18)) == [1, -2]


def test_a_dictionary_may_end_before_the_values_do(reader):
    for type in (pa.decimal128(7, 0), pa.decimal128(12, 0)):
        data = pa.table({"m": pa.array([Decimal(n * n % 9973 - 4000) for n in range(9000)], type)})
        found = reader(
            data,
            use_dictionary=True,
            dictionary_pagesize_limit=2000,
            data_page_size=1000,
            row_group_size=5000,
        )
        encodings = found.file.getRowGroups().get(0).getColumns().get(0).getEncodings().toString()
        assert "RLE_DICTIONARY" in encodings and "PLAIN" in encodings
        assert [Decimal(n) for n in found.numbers(0, type.precision)] == data["m"].to_pylist()


def test_other_encodings_are_left_to_spark(reader):
    data = pa.table({"m": pa.array([Decimal(1), Decimal(-2)], MONEY)})
    found = reader(data, use_dictionary=False, column_encoding={"m": "DELTA_BYTE_ARRAY"})
    assert found.types() == ["FIXED_LEN_BYTE_ARRAY"]
    assert list(found.numbers(0, 12)) == [100, -200]


def test_pages_of_another_kind_are_refused(reader):
    data = pa.table({"m": pa.array([Decimal(1), Decimal(-2)], MONEY)})
    found = reader(data, use_dictionary=False, data_page_version="2.0")
    with pytest.raises(Py4JJavaError, match="a page of decimals of another kind: .*DataPageV2"):
        list(found.numbers(0, 12))


def test_pages_in_another_encoding_than_the_footer_says_are_refused(spark, java, tmp_path):
    path = tmp_path / "m.parquet"
    data = pa.table({"m": pa.array([Decimal(1), Decimal(-2)], MONEY)})
    pq.write_table(
        data,
        path,
        compression="none",
        use_dictionary=False,
        column_encoding={"m": "DELTA_BYTE_ARRAY"},
    )
    stored = path.read_bytes()
    told = bytes((2 << 4 | 5, 3 << 1, 7 << 1))  # a list of two numbers: RLE, DELTA_BYTE_ARRAY
    assert stored.count(told) == 1
    path.write_bytes(stored.replace(told, told[:2] + bytes(1)))
    found = Reader(spark, java, path)
    try:
        assert found.types() == ["INT64"]
        with pytest.raises(
            Py4JJavaError, match="a page of decimals in the encoding DELTA_BYTE_ARRAY"
        ):
            list(found.numbers(0, 12))
    finally:
        found.close()
