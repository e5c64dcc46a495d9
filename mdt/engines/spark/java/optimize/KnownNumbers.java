// A set of whole numbers, days or times that rows are tested against: open addressing, since Scala's sets of boxed numbers take
// several times as long. Spark's generated code knows it as a LongPredicate: a class of ours is unknown where Spark compiles that code.
package mdt.spark;

import java.util.function.LongPredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;

final class KnownNumbers extends KnownValues implements LongPredicate {
    static final int VALUES_MAX = 1 << 18; // 4 MiB go to the tasks of a stage
    private static final long SPREAD = 0x9E3779B97F4A7C15L; // 2^64 by the golden ratio: Knuth, The Art of Computer Programming 3, 6.4
    private long[] slots; // null: everything passes; 0: free
    private boolean zero;
    private int shift;

    KnownNumbers(Expression question) {
        super(question);
    }

    void know(Object[] values) {
        if (values.length > VALUES_MAX) {
            slots = null;
            return;
        }
        int bits = 64 - Long.numberOfLeadingZeros(Math.max(1, values.length)) + 1; // half of the slots are free
        long[] made = new long[1 << bits];
        boolean hasZero = false;
        shift = 64 - bits;
        for (int i = 0; i < values.length; i++) {
            if (values[i] != null) {
                long value = ((Number) values[i]).longValue();
                hasZero |= value == 0;
                made[at(made, value)] = value;
            }
        }
        zero = hasZero;
        slots = made;
    }

    public boolean test(long value) {
        return slots == null || (value == 0 ? zero : slots[at(slots, value)] == value);
    }

    /** Returns the slot that has a value, or a free one. */
    private int at(long[] in, long value) {
        int at = (int) (value * SPREAD >>> shift);
        while (in[at] != 0 && in[at] != value) {
            at = at + 1 & in.length - 1;
        }
        return at;
    }
}
