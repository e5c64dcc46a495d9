"""Decimals that Spark reads as integers: DecimalPages.java rewrites their pages of bytes."""

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
    """Return a random number of the type, often an extreme value."""
    largest = 10**type.precision - 1
    unscaled = draw.choice(
        [largest, -largest, 0, -1, draw.randint(-largest, largest), draw.randint(-largest, largest)]
    )
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -type.scale))


def rows_of(ids, seed):
    """Return rows with columns for each precision, with many and with few distinct values, and with
    nested decimals. A tenth of all values are null.
    """
    draw = random.Random(seed)
    columns = {"id": pa.array(ids, pa.int64())}

    def values_with_nulls(make):
        return [None if draw.random() < 0.1 else make() for _ in ids]

    for precision in PRECISIONS:
        type = pa.decimal128(precision, precision // 3)
        few_values = [number(draw, type) for _ in range(5)]
        columns[f"many{precision}"] = pa.array(
            values_with_nulls(lambda type=type: number(draw, type)), type
        )
        columns[f"few{precision}"] = pa.array(
            values_with_nulls(lambda few_values=few_values: draw.choice(few_values)), type
        )
    fields, small = pa.struct([("a", MONEY), ("b", pa.int32())]), pa.decimal128(5, 1)
    columns["inside"] = pa.array(
        values_with_nulls(lambda: {"a": draw.choice([None, number(draw, MONEY)]), "b": 1}), fields
    )
    columns["several"] = pa.array(
        values_with_nulls(
            lambda: [draw.choice([None, number(draw, small)]) for _ in range(draw.randint(0, 3))]
        ),
        pa.list_(small),
    )
    columns["named"] = pa.array(
        values_with_nulls(lambda: [("x", number(draw, MONEY))]), pa.map_(pa.string(), MONEY)
    )
    return pa.table(columns)


def assert_read_alike(spark, table, where="true"):
    """Assert that Spark and the process read the same rows."""
    in_process = table.scan(where=where).to_arrow().sort_by("id")
    frame = mdt.read(spark, table.path)
    assert frame.where(where).sort("id").toArrow().to_pylist() == in_process.to_pylist()
    for name in {"few1", "many12", "several"}.intersection(table.schema.names):
        # read alone, since other columns may select the pages
        assert (
            frame.where(where).sort("id").select(name).toArrow()[name].to_pylist()
            == in_process[name].to_pylist()
        )


@pytest.mark.parametrize(("rows", "compression"), [(ROWS, "lz4"), (ROWS, "zstd"), (50, "lz4")])
def test_decimals_of_every_precision_are_read(spark, tmp_path, rows, compression):
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


def test_columns_of_nulls_are_read_on_and_off_the_heap(spark, tmp_path):
    data = pa.table(
        {
            "id": range(ROWS),
            "none": pa.nulls(ROWS, MONEY),
            "late": pa.array([None] * (ROWS - 1) + [Decimal("-0.01")], MONEY),
        }
    )
    table = create(tmp_path / "t", data.schema, key=["id"])
    table.upsert(data)
    for values in ({}, {"spark.sql.columnVector.offheap.enabled": "true"}):
        with settings_of(spark, values):
            assert_read_alike(spark, table)


def test_files_written_before_a_widening_are_read_in_their_own_precision(spark, tmp_path):
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


# -- the Java classes by themselves


@pytest.fixture(scope="module")
def java(spark):
    """The class loader of the Java half."""
    return factory_of(spark.sparkContext).getClass().getClassLoader()


def call_static(spark, java, class_name, name, *arguments):
    """Call a static method of a class that is not public."""
    method = next(
        candidate
        for candidate in java.loadClass(f"mdt.spark.{class_name}").getDeclaredMethods()
        if candidate.getName() == name and len(candidate.getParameterTypes()) == len(arguments)
    )
    method.setAccessible(True)
    argument_array = private.gateway(spark.sparkContext).new_array(
        private.jvm(spark).Object, len(arguments)
    )
    for i, argument in enumerate(arguments):
        argument_array[i] = argument
    return method.invoke(None, argument_array)


def test_big_endian_bytes_become_integers(spark, java):
    buffers = private.jvm(spark).java.nio.ByteBuffer

    @settings(max_examples=60, deadline=None)
    @given(st.data(), st.integers(1, 8), st.binary(max_size=9))
    def check(data, length, levels):
        width = 4 if length <= 4 else 8
        limit = 1 << (8 * length - 1)
        numbers = data.draw(st.lists(st.integers(-limit, limit - 1), max_size=20))
        stored = levels + b"".join(n.to_bytes(length, "big", signed=True) for n in numbers)
        page = call_static(
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
        assert bytes(page.toByteArray()) == expected

    check()


def test_pages_whose_size_does_not_fit_the_length_of_numbers_are_refused(spark, java):
    buffers = private.jvm(spark).java.nio.ByteBuffer
    for size, levels in ((13, 0), (12, 1), (5, 6)):
        with pytest.raises(
            Py4JJavaError,
            match=f"{size} bytes, the first {levels} of them levels, are not a page of numbers of 6",
        ):
            call_static(
                spark, java, "IntegerPages", "integers", buffers.wrap(bytes(size)), levels, 6, 8
            )


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
        call_static(spark, java, "DecimalPages", "before", iterator, self.file)

    def types(self):
        """Return the Parquet types of the columns as the reader sees them."""
        field = self.java.getClass().getSuperclass().getDeclaredField("parquetColumn")
        field.setAccessible(True)
        columns = field.get(self.java).children()
        return [
            columns.apply(i).descriptor().get().getPrimitiveType().getPrimitiveTypeName().toString()
            for i in range(columns.size())
        ]

    def numbers(self, column, precision):
        """Yield the unscaled values of a column without nulls."""
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
    """A function that writes a file and opens it."""
    opened = []

    def open_new(data, **options):
        path = tmp_path / f"{len(opened)}.parquet"
        pq.write_table(data, path, compression="none", **options)
        opened.append(Reader(spark, java, path))
        return opened[-1]

    yield open_new
    for opened_reader in opened:
        opened_reader.close()


def test_the_reader_sees_short_decimals_as_integers(reader):
    types = {
        "a": pa.decimal128(9, 2),
        "b": pa.decimal128(10, 2),
        "c": pa.decimal128(18, 0),
        "d": pa.decimal128(19, 0),
    }
    data = pa.table(
        {name: pa.array([Decimal(1), Decimal(-2)], type) for name, type in types.items()}
    )
    plain = reader(data, use_dictionary=False)
    assert plain.types() == ["INT32", "INT64", "INT64", "FIXED_LEN_BYTE_ARRAY"]
    assert list(plain.numbers(1, 10)) == [100, -200]
    assert list(reader(data, use_dictionary=True).numbers(2, 18)) == [1, -2]


def test_columns_that_fall_back_from_dictionary_to_plain_encoding_are_read(reader):
    for type in (pa.decimal128(7, 0), pa.decimal128(12, 0)):
        data = pa.table({"m": pa.array([Decimal(n * n % 9973 - 4000) for n in range(9000)], type)})
        opened = reader(
            data,
            use_dictionary=True,
            dictionary_pagesize_limit=2000,
            data_page_size=1000,
            row_group_size=5000,
        )
        encodings = opened.file.getRowGroups().get(0).getColumns().get(0).getEncodings().toString()
        assert "RLE_DICTIONARY" in encodings and "PLAIN" in encodings
        assert [Decimal(n) for n in opened.numbers(0, type.precision)] == data["m"].to_pylist()


def test_columns_in_other_encodings_are_left_to_spark(reader):
    data = pa.table({"m": pa.array([Decimal(1), Decimal(-2)], MONEY)})
    opened = reader(data, use_dictionary=False, column_encoding={"m": "DELTA_BYTE_ARRAY"})
    assert opened.types() == ["FIXED_LEN_BYTE_ARRAY"]
    assert list(opened.numbers(0, 12)) == [100, -200]


def test_data_pages_of_version_2_are_refused(reader):
    data = pa.table({"m": pa.array([Decimal(1), Decimal(-2)], MONEY)})
    opened = reader(data, use_dictionary=False, data_page_version="2.0")
    with pytest.raises(Py4JJavaError, match="a page of decimals of another kind: .*DataPageV2"):
        list(opened.numbers(0, 12))


def test_pages_whose_encoding_differs_from_the_footer_are_refused(spark, java, tmp_path):
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
    encodings = bytes(
        (2 << 4 | 5, 3 << 1, 7 << 1)
    )  # the encodings in the footer, a list of two: RLE, DELTA_BYTE_ARRAY
    assert stored.count(encodings) == 1
    path.write_bytes(stored.replace(encodings, encodings[:2] + bytes(1)))
    opened = Reader(spark, java, path)
    try:
        assert opened.types() == ["INT64"]
        with pytest.raises(
            Py4JJavaError, match="a page of decimals in the encoding DELTA_BYTE_ARRAY"
        ):
            list(opened.numbers(0, 12))
    finally:
        opened.close()
