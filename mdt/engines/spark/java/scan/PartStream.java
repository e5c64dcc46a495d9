// A stream of a fixed number of bytes, with positions from 0.
package mdt.spark;

import java.io.EOFException;
import java.io.IOException;
import org.apache.hadoop.fs.FSInputStream;

abstract class PartStream extends FSInputStream {
    final long length;
    long at = 0;

    PartStream(long length) {
        this.length = length;
    }

    public void seek(long position) throws IOException {
        if (position < 0 || position > length) {
            throw new EOFException("seek to " + position + " in a block of " + length + " bytes");
        }
        at = position;
    }

    public long getPos() {
        return at;
    }

    public boolean seekToNewSource(long position) {
        return false;
    }

    public int available() {
        return (int) Math.min((long) Integer.MAX_VALUE, length - at);
    }
}
