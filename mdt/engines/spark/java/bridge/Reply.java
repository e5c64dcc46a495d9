// The bytes of a reply from Python, with little-endian integers. The format is at the head of file_index.py.
package mdt.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

final class Reply {
    private Reply() {}

    /** Returns the body of a reply: the bytes after the first, or the file that they name if the first is 1. */
    static ByteBuffer body(byte[] reply) {
        ByteBuffer bytes = ByteBuffer.wrap(reply);
        if (bytes.get() != 0) {
            Path file = Paths.get(new String(reply, 1, reply.length - 1, StandardCharsets.UTF_8));
            try {
                bytes = ByteBuffer.wrap(Files.readAllBytes(file));
                Files.delete(file);
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
        return bytes.order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Reads count int32, or returns null for a negative count. */
    static int[] ints(ByteBuffer bytes, int count) {
        if (count < 0) {
            return null;
        }
        int[] values = new int[count];
        bytes.asIntBuffer().get(values);
        bytes.position(bytes.position() + 4 * count);
        return values;
    }

    /** Reads count texts: the end of each, then all in UTF-8. */
    static String[] texts(ByteBuffer bytes, int count) {
        int[] ends = ints(bytes, count);
        int begin = bytes.arrayOffset() + bytes.position();
        int end = 0;
        String[] texts = new String[count];
        for (int i = 0; i < count; i++) {
            texts[i] = new String(bytes.array(), begin + end, ends[i] - end, StandardCharsets.UTF_8);
            end = ends[i];
        }
        bytes.position(bytes.position() + end);
        return texts;
    }

    /** Reads count int64. */
    static long[] longs(ByteBuffer bytes, int count) {
        long[] values = new long[count];
        bytes.asLongBuffer().get(values);
        bytes.position(bytes.position() + 8 * count);
        return values;
    }
}
