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
    private final FSDataInputStream in;
    private final long offset;

    BlockStream(FSDataInputStream in, long offset, long length) throws IOException {
        super(length);
        this.in = in;
        this.offset = offset;
        in.seek(offset);
    }

    public void seek(long to) throws IOException {
        super.seek(to);
        in.seek(offset + to);
    }

    public int read() throws IOException {
        if (at >= length) {
            return -1;
        }
        int each = in.read();
        at += each >= 0 ? 1 : 0;
        return each;
    }

    public int read(byte[] to, int start, int count) throws IOException {
        if (count == 0) {
            return 0;
        }
        if (at >= length) {
            return -1;
        }
        int got = in.read(to, start, (int) Math.min((long) count, length - at));
        at += Math.max(0, got);
        return got;
    }

    public int read(long position, byte[] to, int start, int count) throws IOException {
        if (position >= length) {
            return -1;
        }
        return in.read(offset + position, to, start, (int) Math.min((long) count, length - position));
    }

    /** Reads several ranges at once, which is best for object stores. */
    public void readVectored(List ranges, IntFunction allocate) throws IOException {
        List moved = new ArrayList();
        for (int i = 0; i < ranges.size(); i++) {
            FileRange each = (FileRange) ranges.get(i);
            if (each.getOffset() + each.getLength() > length) {
                throw new EOFException("a range beyond a block of " + length + " bytes");
            }
            moved.add(new FileRangeImpl(offset + each.getOffset(), each.getLength(), null));
        }
        in.readVectored(moved, allocate);
        for (int i = 0; i < ranges.size(); i++) {
            ((FileRange) ranges.get(i)).setData(((FileRange) moved.get(i)).getData());
        }
    }

    public void close() throws IOException {
        in.close();
    }
}
