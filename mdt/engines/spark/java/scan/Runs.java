// Runs of rows in Parquet's form, an index of imaginary pages. Parquet reads parts of a row group by RowRanges, which
// can only be made from the rows of pages.
package mdt.spark;

import java.util.Arrays;
import org.apache.parquet.internal.column.columnindex.OffsetIndex;
import org.apache.parquet.internal.filter2.columnindex.RowRanges;
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;

final class Runs implements OffsetIndex {
    private long[] firsts = new long[64];
    private long[] lasts = new long[64];
    private int count = 0;

    /**
     * Returns the positions within a row group that begins at begin and has this many rows, relative to its first row.
     */
    static RowRanges of(RoaringBitmap positions, long begin, long rows) {
        Runs runs = new Runs();
        PeekableIntIterator each = positions.getIntIterator();
        each.advanceIfNeeded((int) begin);
        while (each.hasNext() && each.peekNext() < begin + rows) {
            runs.add(each.next() - begin);
        }
        int[] numbers = new int[runs.count];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = i;
        }
        return RowRanges.create(rows, Arrays.stream(numbers).iterator(), runs);
    }

    private void add(long row) {
        if (count > 0 && lasts[count - 1] == row - 1) {
            lasts[count - 1] = row;
            return;
        }
        if (count == firsts.length) {
            firsts = Arrays.copyOf(firsts, 2 * count);
            lasts = Arrays.copyOf(lasts, 2 * count);
        }
        firsts[count] = row;
        lasts[count++] = row;
    }

    public int getPageCount() {
        return count;
    }

    public long getOffset(int page) {
        return 0;
    }

    public int getCompressedPageSize(int page) {
        return 0;
    }

    public long getFirstRowIndex(int page) {
        return firsts[page];
    }

    public long getLastRowIndex(int page, long rows) {
        return lasts[page];
    }
}
