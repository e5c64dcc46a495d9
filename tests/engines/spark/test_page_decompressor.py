"""Pages come out of their codecs as they went in, and of damaged ones nothing comes."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from trees import create

from mdt.engines.spark import private
from mdt.engines.spark.java_half import factory_of

CODECS = {"LZ4_RAW": "lz4_raw", "SNAPPY": "snappy", "ZSTD": "zstd"}
"""Parquet's names of those that have a decompressor of ours, and Arrow's."""
PIECES = st.lists(st.binary(max_size=40).map(lambda piece: piece * 7), max_size=20).map(b"".join)


@pytest.fixture(scope="module")
def java(spark):
    """The class loader of the Java half."""
    return factory_of(spark.sparkContext).getClass().getClassLoader()


class Decompressor:
    """One of the Java half."""

    def __init__(self, spark, java, codec):
        self.jvm, self.gateway = private.jvm(spark), private.gateway(spark.sparkContext)
        made = java.loadClass("mdt.spark.PageDecompressor").getDeclaredConstructors()[0]
        made.setAccessible(True)
        names = self.jvm.org.apache.parquet.hadoop.metadata.CompressionCodecName
        arguments = self.gateway.new_array(self.jvm.Object, 1)
        arguments[0] = names.valueOf(codec)
        self.java = made.newInstance(arguments)

    def decompress(self, page, size):
        given = getattr(self.jvm.org.apache.parquet.bytes.BytesInput, "from")(page)
        return bytes(self.java.decompress(given, size).toByteArray())

    def decompress_buffer(self, page, size):
        buffers = self.jvm.java.nio.ByteBuffer
        to = buffers.allocate(size)
        self.java.decompress(buffers.wrap(page), len(page), to, size)
        return bytes(to.array())


@pytest.fixture(params=CODECS)
def decompressor(request, spark, java):
    found = Decompressor(spark, java, request.param)
    yield found, CODECS[request.param]
    found.java.release()


def test_pages_come_out_as_they_went_in(decompressor):
    java, codec = decompressor

    @settings(max_examples=40, deadline=None)
    @given(PIECES)
    def check(page):
        packed = pa.compress(page, codec=codec, asbytes=True)
        assert java.decompress(packed, len(page)) == page
        assert java.decompress_buffer(packed, len(page)) == page

    check()


def test_nothing_need_not_be_compressed(decompressor):
    assert decompressor[0].decompress(b"", 0) == b""


def test_damaged_pages_and_wrong_sizes_are_refused(decompressor):
    java, codec = decompressor
    page = bytes(range(256)) * 20
    packed = pa.compress(page, codec=codec, asbytes=True)
    for data, size in (
        (packed, len(page) - 1),
        (packed, len(page) + 1),
        (packed, -1),
        (packed[:-3], len(page)),
        (b"", len(page)),
        (bytes(len(packed)), len(page)),
    ):
        with pytest.raises(Py4JJavaError, match="java.io.IOException: "):
            java.decompress(data, size)


def test_what_no_byte_can_stand_for_is_not_allocated(spark, java):
    with pytest.raises(Py4JJavaError, match="17 bytes of LZ4_RAW cannot be 2147483647 bytes"):
        Decompressor(spark, java, "LZ4_RAW").decompress(bytes(17), 2**31 - 1)


def test_a_reader_of_a_file_takes_ours(spark, java, tmp_path):
    data = pa.table({"id": range(5000)})
    table = create(tmp_path / "t", data.schema)
    table.upsert(data)
    jvm = private.jvm(spark)
    conf = jvm.org.apache.hadoop.conf.Configuration()
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "t" / table.files()["name"][0].as_py()))
    file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, conf)
    options = jvm.org.apache.parquet.HadoopReadOptions.builder(conf, path).build()
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(file, options)
    methods = java.loadClass("mdt.spark.PageDecompressor").getDeclaredMethods()
    serve = next(method for method in methods if method.getName() == "serve")
    serve.setAccessible(True)
    arguments = private.gateway(spark.sparkContext).new_array(jvm.Object, 1)
    arguments[0] = reader
    try:
        serve.invoke(None, arguments)
        names = jvm.org.apache.parquet.hadoop.metadata.CompressionCodecName
        found = [
            options.getCodecFactory().getDecompressor(names.valueOf(codec)) for codec in CODECS
        ]
        assert {one.getClass().getName() for one in found} == {"mdt.spark.PageDecompressor"}
        assert reader.readNextRowGroup().getRowCount() == 5000
    finally:
        reader.close()
