// Decompresses the pages of our files. Parquet creates a stream with a buffer of 64 KiB (io.file.buffer.size, as set by
// Spark) per page, which costs more than decompressing a page of 4 KiB. Here a page is decompressed from array to
// array. A Parquet reader keeps a decompressor per codec in a private map, in which ours replace them.
package mdt.spark;

import com.github.luben.zstd.ZstdDecompressCtx;
import io.airlift.compress.lz4.Lz4Decompressor;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.parquet.bytes.BytesInput;
import org.apache.parquet.compression.CompressionCodecFactory;
import org.apache.parquet.hadoop.CodecFactory;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.xerial.snappy.Snappy;

public final class PageDecompressor extends CodecFactory.BytesDecompressor {
    private static final CompressionCodecName[] CODECS = {
        CompressionCodecName.LZ4_RAW, CompressionCodecName.SNAPPY, CompressionCodecName.ZSTD
    };
    private static final int LZ4_RATIO_MAX = 255; // of the format: the maximum expansion of a byte
    private final CompressionCodecName codec;
    private final Lz4Decompressor lz4 = new Lz4Decompressor();
    private ZstdDecompressCtx zstd; // null: not used yet

    private PageDecompressor(CompressionCodecName codec) {
        this.codec = codec;
    }

    /** Decompresses the pages of a file's reader here. */
    static void serve(ParquetFileReader file) {
        Map decompressors = Internals.decompressors(file);
        for (CompressionCodecName codec : CODECS) {
            Object before = decompressors.put(codec, new PageDecompressor(codec));
            if (before != null) {
                ((CompressionCodecFactory.BytesInputDecompressor) before).release();
            }
        }
    }

    public BytesInput decompress(BytesInput page, int bytes) throws IOException {
        ByteBuffer buffer = page.toInputStream().slice((int) page.size());
        if (buffer.hasArray()) {
            return BytesInput.from(decompressed(buffer.array(), buffer.arrayOffset() + buffer.position(), buffer.remaining(), bytes));
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.get(copy);
        return BytesInput.from(decompressed(copy, 0, copy.length, bytes));
    }

    public void decompress(ByteBuffer source, int compressed, ByteBuffer target, int bytes) throws IOException {
        byte[] copy = new byte[compressed];
        source.get(copy);
        target.put(decompressed(copy, 0, compressed, bytes));
    }

    private byte[] decompressed(byte[] source, int offset, int length, int bytes) throws IOException {
        if (bytes < 0 || codec == CompressionCodecName.LZ4_RAW && bytes > (long) LZ4_RATIO_MAX * length) {
            throw new IOException(length + " bytes of " + codec + " cannot be " + bytes + " bytes");
        }
        byte[] target = new byte[bytes];
        if (length == 0 && bytes == 0) {
            return target; // some writers do not compress empty values, such as those of nulls
        }
        int count;
        try {
            count = decompress(source, offset, length, target);
        } catch (RuntimeException damaged) { // each library has its own exceptions
            throw new IOException("a page of " + codec + " is damaged: " + damaged.getMessage(), damaged);
        }
        if (count != bytes) {
            throw new IOException("a page of " + codec + " has " + count + " bytes, not " + bytes);
        }
        return target;
    }

    private int decompress(byte[] source, int offset, int length, byte[] target) throws IOException {
        if (codec == CompressionCodecName.LZ4_RAW) {
            return lz4.decompress(source, offset, length, target, 0, target.length);
        }
        if (codec == CompressionCodecName.SNAPPY) {
            int bytes = Snappy.uncompressedLength(source, offset, length);
            return bytes == target.length ? Snappy.uncompress(source, offset, length, target, 0) : bytes;
        }
        if (zstd == null) {
            zstd = new ZstdDecompressCtx();
        }
        return zstd.decompressByteArray(target, 0, target.length, source, offset, length);
    }

    public void release() {
        if (zstd != null) {
            zstd.close();
            zstd = null;
        }
    }
}
