"""Pages decompress to their original bytes, and damaged pages raise errors."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from trees import create

from mdt.engines.spark import private
from mdt.engines.spark.java_half import factory_of

CODECS = {"LZ4_RAW": "lz4_raw", "SNAPPY": "snappy", "ZSTD": "zstd"}
"""Codecs with a decompressor in the Java half: Parquet's name and Arrow's name."""
PIECES = st.lists(st.binary(max_size=40).map(lambda piece: piece * 7), max_size=20).map(b"".join)


@pytest.fixture(scope="module")
def java(spark):
    """The class loader of the Java half."""
    return factory_of(spark.sparkContext).getClass().getClassLoader()


class Decompressor:
    """A decompressor of the Java half."""

    def __init__(self, spark, java, codec):
        self.jvm, self.gateway = private.jvm(spark), private.gateway(spark.sparkContext)
        constructor = java.loadClass("mdt.spark.PageDecompressor").getDeclaredConstructors()[0]
        constructor.setAccessible(True)
        names = self.jvm.org.apache.parquet.hadoop.metadata.CompressionCodecName
        arguments = self.gateway.new_array(self.jvm.Object, 1)
        arguments[0] = names.valueOf(codec)
        self.java = constructor.newInstance(arguments)

    def decompress(self, page, size):
        page_bytes = getattr(self.jvm.org.apache.parquet.bytes.BytesInput, "from")(page)
        return bytes(self.java.decompress(page_bytes, size).toByteArray())

    def decompress_buffer(self, page, size):
        buffers = self.jvm.java.nio.ByteBuffer
        target = buffers.allocate(size)
        self.java.decompress(buffers.wrap(page), len(page), target, size)
        return bytes(target.array())


@pytest.fixture(params=CODECS)
def decompressor(request, spark, java):
    created = Decompressor(spark, java, request.param)
    yield created, CODECS[request.param]
    created.java.release()


def test_decompressed_pages_equal_the_original_bytes(decompressor):
    java, codec = decompressor

    @settings(max_examples=40, deadline=None)
    @given(PIECES)
    def check(page):
        packed = pa.compress(page, codec=codec, asbytes=True)
        assert java.decompress(packed, len(page)) == page
        assert java.decompress_buffer(packed, len(page)) == page

    check()


def test_an_empty_page_decompresses_to_no_bytes(decompressor):
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


def test_an_impossible_decompressed_size_is_refused(spark, java):
    with pytest.raises(Py4JJavaError, match="17 bytes of LZ4_RAW cannot be 2147483647 bytes"):
        Decompressor(spark, java, "LZ4_RAW").decompress(bytes(17), 2**31 - 1)


def test_a_parquet_reader_uses_the_decompressors_of_mdt(spark, java, tmp_path):
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
        decompressors = [
            options.getCodecFactory().getDecompressor(names.valueOf(codec)) for codec in CODECS
        ]
        assert {
            codec_decompressor.getClass().getName() for codec_decompressor in decompressors
        } == {"mdt.spark.PageDecompressor"}
        assert reader.readNextRowGroup().getRowCount() == 5000
    finally:
        reader.close()
