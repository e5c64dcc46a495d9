// The batches of a split without deleted rows, with the newest columns. A batch is an array of columns (ColumnVector)
// of several thousand rows, which Spark's reader refills. A batch without deleted rows is passed through. For other
// batches each column is wrapped by a column with fewer rows (LiveVector), and nothing is copied.
package mdt.spark;

import java.io.Closeable;
import java.io.IOException;
import java.util.NoSuchElementException;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.roaringbitmap.PeekableIntIterator;

final class LiveBatches extends scala.collection.AbstractIterator implements Closeable {
    private final scala.collection.Iterator batches;
    private final RowGroups groups; // null: all rows are returned
    private final Selection selection;
    private final Conversion conversion; // null: the columns need no conversion
    private final PeekableIntIterator dead;
    private int[] positions = new int[4096];
    private int[] liveRows = new int[4096];
    private ColumnarBatch source = null; // the batch for which the following were created
    private ColumnarBatch fullBatch;
    private ColumnarBatch part;
    private LiveVector[] vectors;
    private ColumnarBatch ready = null;

    LiveBatches(scala.collection.Iterator batches, RowGroups groups, Selection selection, Conversion conversion) {
        this.batches = batches;
        this.groups = groups;
        this.selection = selection;
        this.conversion = conversion;
        this.dead = selection.dead == null ? null : selection.dead.getIntIterator();
    }

    public boolean hasNext() {
        while (ready == null && batches.hasNext()) {
            ready = live((ColumnarBatch) batches.next());
        }
        return ready != null;
    }

    public Object next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        ColumnarBatch batch = ready;
        ready = null;
        return batch;
    }

    public void close() throws IOException {
        ((Closeable) batches).close();
    }

    /** Returns the live rows of a batch, or null if there are none. */
    private ColumnarBatch live(ColumnarBatch batch) {
        int rows = batch.numRows();
        int count = groups == null ? rows : keep(rows);
        if (count == 0) {
            return null;
        }
        wrap(batch);
        if (count == rows) {
            fullBatch.setNumRows(rows);
            return fullBatch;
        }
        for (LiveVector vector : vectors) {
            vector.keep(liveRows);
        }
        part.setNumRows(count);
        return part;
    }

    private void wrap(ColumnarBatch batch) {
        if (source == batch) {
            return;
        }
        source = batch;
        fullBatch = conversion == null ? batch : new ColumnarBatch(conversion.columns(batch));
        vectors = new LiveVector[fullBatch.numCols()];
        for (int i = 0; i < vectors.length; i++) {
            vectors[i] = new LiveVector(fullBatch.column(i));
        }
        part = new ColumnarBatch((ColumnVector[]) vectors);
    }

    /** Stores the indexes in the batch of the next rows that are returned; returns their number. */
    private int keep(int rows) {
        if (liveRows.length < rows) {
            positions = new int[rows];
            liveRows = new int[rows];
        }
        boolean scattered = groups.positions(positions, rows);
        boolean readsWantedOnly = !groups.readsOthers();
        if (!scattered && readsWantedOnly) {
            return keepLive(positions[0], rows);
        }
        int count = 0;
        for (int i = 0; i < rows; i++) {
            int position = scattered ? positions[i] : positions[0] + i;
            if (!isDead(position) && (readsWantedOnly || selection.candidates.contains(position))) {
                liveRows[count++] = i;
            }
        }
        return count;
    }

    /** The same for consecutive rows, by the deleted positions among them. */
    private int keepLive(int begin, int rows) {
        dead.advanceIfNeeded(begin);
        int count = 0;
        int row = 0;
        while (dead.hasNext() && dead.peekNext() < begin + rows) {
            int deadRow = dead.next() - begin;
            while (row < deadRow) {
                liveRows[count++] = row++;
            }
            row = deadRow + 1;
        }
        while (row < rows) {
            liveRows[count++] = row++;
        }
        return count;
    }

    private boolean isDead(int position) {
        if (dead == null) {
            return false;
        }
        dead.advanceIfNeeded(position); // positions are sorted
        return dead.hasNext() && dead.peekNext() == position;
    }
}
