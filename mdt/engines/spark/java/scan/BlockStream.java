// The bytes of a block: a stream over a part of another stream, with positions from 0.
package mdt.spark;

import java.io.EOFException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.impl.FileRangeImpl;

final class BlockStream extends PartStream {
    private final FSDataInputStream stream;
    private final long offset;

    BlockStream(FSDataInputStream stream, long offset, long length) throws IOException {
        super(length);
        this.stream = stream;
        this.offset = offset;
        stream.seek(offset);
    }

    public void seek(long position) throws IOException {
        super.seek(position);
        stream.seek(offset + position);
    }

    public int read() throws IOException {
        if (at >= length) {
            return -1;
        }
        int each = stream.read();
        at += each >= 0 ? 1 : 0;
        return each;
    }

    public int read(byte[] buffer, int start, int count) throws IOException {
        if (count == 0) {
            return 0;
        }
        if (at >= length) {
            return -1;
        }
        int readBytes = stream.read(buffer, start, (int) Math.min((long) count, length - at));
        at += Math.max(0, readBytes);
        return readBytes;
    }

    public int read(long position, byte[] buffer, int start, int count) throws IOException {
        if (position >= length) {
            return -1;
        }
        return stream.read(offset + position, buffer, start, (int) Math.min((long) count, length - position));
    }

    /** Reads several ranges at once, which is best for object stores. */
    public void readVectored(List ranges, IntFunction allocate) throws IOException {
        List shifted = new ArrayList();
        for (Object item : ranges) {
            FileRange each = (FileRange) item;
            if (each.getOffset() + each.getLength() > length) {
                throw new EOFException("a range beyond a block of " + length + " bytes");
            }
            shifted.add(new FileRangeImpl(offset + each.getOffset(), each.getLength(), null));
        }
        stream.readVectored(shifted, allocate);
        for (int i = 0; i < ranges.size(); i++) {
            ((FileRange) ranges.get(i)).setData(((FileRange) shifted.get(i)).getData());
        }
    }

    public void close() throws IOException {
        stream.close();
    }
}
