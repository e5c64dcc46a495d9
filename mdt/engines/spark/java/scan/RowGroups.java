// The row groups of a split: tracks the file positions of the rows of each batch, and returns only row groups and pages
// with candidate rows.
package mdt.spark;

import java.util.List;
import java.util.PrimitiveIterator;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.internal.filter2.columnindex.RowRanges;

final class RowGroups extends Groups {
    private final Selection selection;
    private ParquetFileReader file; // null: row groups as chosen by Spark
    private boolean onlyWanted = false; // true if no other rows are read
    private RowRanges[] ranges; // candidate rows of each row group; null: all rows
    private int next = 0;
    private long first; // position of the first row of the current row group
    private PrimitiveIterator.OfLong chosen; // indexes in it of the rows that were read; null: all rows
    private long passed; // number of its rows that are already in batches

    private RowGroups(Selection selection) {
        this.selection = selection;
    }

    /** Inserts itself between the reader of a Spark iterator and its row groups. */
    static RowGroups before(Object iterator, ParquetFileReader file, Selection selection) {
        Object reader = Internals.reader(iterator);
        RowGroups rowGroups = new RowGroups(selection);
        if (selection.candidates != null) {
            Internals.setRows(reader, rowGroups.plan(file));
        }
        rowGroups.before(reader);
        return rowGroups;
    }

    /** Returns true if only rows that are returned are read. */
    boolean isExact() {
        return selection.dead == null && (selection.candidates == null || onlyWanted);
    }

    /** Returns true if rows are read that are not candidates. */
    boolean readsOthers() {
        return selection.candidates != null && !onlyWanted;
    }

    /** Computes the rows to read of each row group; returns their number. */
    private long plan(ParquetFileReader reader) {
        List groups = reader.getRowGroups();
        RowRanges[] planned = new RowRanges[groups.size()];
        boolean filtered = reader.getFilteredRecordCount() != reader.getRecordCount();
        long total = 0;
        onlyWanted = true;
        for (int i = 0; i < planned.length; i++) {
            BlockMetaData group = (BlockMetaData) groups.get(i);
            long rows = group.getRowCount();
            RowRanges groupRanges = Runs.of(selection.candidates, group.getRowIndexOffset(), rows);
            if (filtered && groupRanges.rowCount() > 0) {
                groupRanges = RowRanges.intersection(groupRanges, Internals.rowRanges(reader, i));
            }
            if (groupRanges.rowCount() > 0 && groupRanges.rowCount() < rows && !Skipping.isSafe(group)) {
                groupRanges = RowRanges.createSingle(rows);
                onlyWanted = false;
            }
            planned[i] = groupRanges.rowCount() == rows ? null : groupRanges;
            total += groupRanges.rowCount();
        }
        ranges = planned;
        file = reader;
        return total;
    }

    PageReadStore next() throws Throwable {
        PageReadStore pages = file == null ? behind() : planned();
        if (pages != null) {
            first = (Long) pages.getRowIndexOffset().get();
            chosen = (PrimitiveIterator.OfLong) pages.getRowIndexes().orElse(null);
            passed = 0;
        }
        return pages;
    }

    private PageReadStore planned() throws Exception {
        while (next < ranges.length) {
            int group = next++;
            if (ranges[group] == null) {
                return file.readRowGroup(group);
            }
            if (ranges[group].rowCount() > 0) {
                return file.readFilteredRowGroup(group, ranges[group]);
            }
        }
        return null;
    }

    /** Stores the positions of the next batch of rows. Returns false, without storing them, if they are consecutive. */
    boolean positions(int[] positions, int rows) {
        if (chosen == null) {
            positions[0] = (int) (first + passed);
            passed += rows;
            return false;
        }
        for (int i = 0; i < rows; i++) {
            positions[i] = (int) (first + chosen.nextLong());
        }
        return true;
    }
}
