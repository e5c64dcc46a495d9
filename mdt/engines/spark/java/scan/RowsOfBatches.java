// The rows of batches one by one, for scans that want rows: of more columns than Spark generates code for, for example.
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
