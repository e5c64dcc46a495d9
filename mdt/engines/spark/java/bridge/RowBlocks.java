// Access to row blocks, which pass through the JVM as bytes between Python tasks: where their heads end, and whether a
// bucket takes their rows. mdt/engines/blocks.py has the format.
package mdt.spark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.api.java.function.Function;

public final class RowBlocks implements Function {
    static final int HEAD = 0; // returns the front and the head of a block
    static final int IS_TOLD = 1; // returns true if no bucket takes its rows
    private static final int FRONT_BYTES = 5; // a byte for the kind, and an integer for the length of the head
    private static final byte TOLD = 1;
    private final int mode;

    RowBlocks(int mode) {
        this.mode = mode;
    }

    public Object call(Object block) {
        byte[] bytes = (byte[]) block;
        if (mode == IS_TOLD) {
            return bytes[0] == TOLD;
        }
        int length = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getInt(1);
        return Arrays.copyOf(bytes, FRONT_BYTES + length);
    }
}
