// Deletion vectors in the table's metadata: the driver sends their locations, and executors read them, verify the
// checksum, and cache them decoded. In remote stores, where a request takes longer than a megabyte, small vectors are
// read together with their neighbors, because a checkpoint stores the vectors of neighboring files side by side.
//
//     the driver sends for a file                         an executor
//       Selection   offset, bytes, CRC-32, count   --->     Recent.VECTORS   decoded, with these numbers as the key
//                   the object, as a path of a block          else a read of the object, or of a chunk of it
package mdt.spark;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.util.SerializableConfiguration;
import org.roaringbitmap.BatchIterator;
import org.roaringbitmap.RoaringBitmap;

final class Vectors implements Serializable {
    static final int BYTES = 20; // of the location of a vector
    private static final int CHUNK_BYTES = 1 << 20; // a store sends this much in little more time than the first byte
    private static final int SMALL_BYTES = 1 << 16; // a chunk has sixteen or more of them
    private static final int ENTRY_BYTES = 256; // of a key and a bitmap, besides its containers
    private static final String REPAIR = "rebuild the metadata from the log with t.repair() or mdt repair";
    private final Broadcast queryConf; // the configuration of the query; null for a local store, which uses the executor's configuration
    private final long bytesMax; // cache size of an executor

    /** conf: null if the store is local. */
    Vectors(SparkContext context, Configuration conf, long bytesMax) {
        this.queryConf = conf == null ? null : context.broadcast(
                new SerializableConfiguration(new Configuration(conf)), scala.reflect.ClassTag$.MODULE$.apply(SerializableConfiguration.class));
        this.bytesMax = bytesMax;
    }

    /** Driver: returns the path by which executors open an object. bytes: its size. */
    static String object(String uri, long bytes) {
        return BlockFileSystem.path(uri, 0L, bytes, bytes, 0, 0);
    }

    /** Executor: returns the deleted rows at a location sent by the driver. */
    RoaringBitmap read(String object, ByteBuffer location) {
        long offset = location.getLong();
        int bytes = location.getInt();
        int crc = location.getInt();
        int count = location.getInt();
        List key = Arrays.asList(object, offset, bytes, crc);
        RoaringBitmap bitmap = (RoaringBitmap) Recent.VECTORS.get(key);
        Recent.VECTORS.count(bitmap != null);
        if (bitmap == null) {
            ByteBuffer data = data(object, offset, bytes);
            CRC32 sum = new CRC32();
            sum.update(data.array(), data.position(), bytes);
            if ((int) sum.getValue() != crc) {
                throw damaged(object, offset, "expected " + Integer.toHexString(crc) + ", got " + Long.toHexString(sum.getValue()), null);
            }
            bitmap = bitmap(data, object, offset);
            if (bitmap.getLongCardinality() != count) {
                throw damaged(object, offset, "expected " + count + " rows, got " + bitmap.getLongCardinality(), null);
            }
            Recent.VECTORS.put(key, bitmap, bitmap.getLongSizeInBytes() + ENTRY_BYTES, bytesMax);
        }
        return bitmap;
    }

    /** Returns the positions in a serialized bitmap. Fails if they are not sorted, or not as many as it declares. */
    static RoaringBitmap bitmap(ByteBuffer bytes, String object, long offset) {
        RoaringBitmap bitmap = new RoaringBitmap();
        try {
            bitmap.deserialize(bytes);
        } catch (Exception failure) {
            throw damaged(object, offset, failure.toString(), failure);
        }
        int[] positions = new int[1024];
        long last = -1;
        long count = 0;
        for (BatchIterator i = bitmap.getBatchIterator(); i.hasNext(); ) {
            int batchCount = i.nextBatch(positions);
            for (int index = 0; index < batchCount; index++) {
                long position = positions[index] & 0xffffffffL;
                if (position <= last) {
                    throw damaged(object, offset, "positions are not sorted", null);
                }
                last = position;
            }
            count += batchCount;
        }
        if (count != bitmap.getLongCardinality()) {
            throw damaged(object, offset, count + " positions for " + bitmap.getLongCardinality(), null);
        }
        return bitmap;
    }

    private ByteBuffer data(String object, long offset, int bytes) {
        try {
            long chunk = offset / CHUNK_BYTES;
            if (queryConf == null || bytesMax < 2 * CHUNK_BYTES || bytes > SMALL_BYTES || (offset + bytes - 1) / CHUNK_BYTES != chunk) {
                return ByteBuffer.wrap(part(object, offset, bytes));
            }
            List key = Arrays.asList(object, chunk);
            byte[] chunkBytes = (byte[]) Recent.VECTORS.get(key);
            if (chunkBytes == null) {
                long begin = chunk * CHUNK_BYTES;
                chunkBytes = part(object, begin, (int) Math.min((long) CHUNK_BYTES, BlockFileSystem.bytes(new Path(object)) - begin));
                Recent.VECTORS.put(key, chunkBytes, chunkBytes.length + ENTRY_BYTES, bytesMax);
            }
            int start = (int) (offset - chunk * CHUNK_BYTES);
            if (start + bytes > chunkBytes.length) {
                throw new EOFException(chunkBytes.length + " bytes");
            }
            return ByteBuffer.wrap(chunkBytes, start, bytes);
        } catch (FileNotFoundException missing) {
            throw new Failure("Missing", "the deletion vectors of data files are missing [" + name(object) + "]",
                    "if the snapshot was cleaned while it was read, create the DataFrame again; if not, " + REPAIR, missing);
        } catch (EOFException end) {
            throw damaged(object, offset, "the object is too short", end);
        } catch (IOException failure) {
            throw new Failure("Unavailable", "deletion vectors cannot be read [" + name(object) + "]: " + failure, "run the query again", failure);
        }
    }

    private byte[] part(String object, long offset, int bytes) throws IOException {
        byte[] data = new byte[bytes];
        FSDataInputStream stream = FarStream.opened(new Path(object),
                queryConf == null ? Footers.CONF : ((SerializableConfiguration) queryConf.value()).value());
        try {
            stream.readFully(offset, data);
        } finally {
            stream.close();
        }
        return data;
    }

    private static Failure damaged(String object, long offset, String detail, Throwable cause) {
        String where = object == null ? "" : " [" + name(object) + " at byte " + offset + "]";
        return new Failure("Corrupt", "the deletion vector of a data file is not as it was written" + where + " (" + detail + ")", REPAIR, cause);
    }

    private static String name(String object) {
        return BlockFileSystem.file(new Path(object)).toString();
    }
}
