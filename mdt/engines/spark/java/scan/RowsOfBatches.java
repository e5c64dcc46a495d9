// The rows of batches, for scans that take rows, for example because they have too many columns for code generation.
package mdt.spark;

import java.io.Closeable;
import java.io.IOException;
import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.vectorized.ColumnarBatch;

final class RowsOfBatches extends scala.collection.AbstractIterator implements Closeable {
    private final LiveBatches batches;
    private Iterator rows = Collections.emptyIterator();

    RowsOfBatches(LiveBatches batches) {
        this.batches = batches;
    }

    public boolean hasNext() {
        while (!rows.hasNext() && batches.hasNext()) {
            rows = ((ColumnarBatch) batches.next()).rowIterator();
        }
        return rows.hasNext();
    }

    public Object next() {
        return rows.next();
    }

    public void close() throws IOException {
        batches.close();
    }
}
