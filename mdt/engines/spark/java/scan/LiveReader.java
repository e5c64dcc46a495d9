// Reads a split on an executor (MdtParquet.java). A function from a PartitionedFile, which identifies the split, to an
// iterator of batches of columns, or of rows if the scan or the session requires rows.
package mdt.spark;

import java.io.Serializable;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.spark.rdd.InputFileBlockHolder;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.runtime.AbstractFunction1;

final class LiveReader extends AbstractFunction1 implements Serializable {
    private final boolean vectorized; // true if Spark's reader returns batches
    private final boolean batches; // true if the scan takes batches
    private final StructType required;
    Function1 newest; // Spark's reader for files of the newest schema version
    Conversion[] conversions; // of older versions; null: their files are read like the newest
    Function1[] older; // Spark's readers for them
    Vectors vectors; // reads deleted positions in other objects
    SQLMetric[] counters; // counters of Recent; null: not requested

    LiveReader(boolean vectorized, boolean batches, StructType required) {
        this.vectorized = vectorized;
        this.batches = batches;
        this.required = required;
    }

    public Object apply(Object split) {
        PartitionedFile file = (PartitionedFile) split;
        long[] counted = counters == null ? null : Recent.counted();
        Selection selection = Selection.of(file, vectors);
        selection.checkFooter(file);
        if (BlockFileSystem.isBlock(file.toPath())) { // for input_file_name()
            InputFileBlockHolder.set(BlockFileSystem.file(file.toPath()).toUri().toString(),
                    BlockFileSystem.offset(file.toPath()) + file.start(), file.length());
        }
        Conversion conversion = selection.version < 0 ? null : conversions[selection.version];
        Function1 reader = conversion == null ? newest : older[selection.version];
        scala.collection.Iterator iterator = (scala.collection.Iterator) reader.apply(file);
        for (int i = 0; counted != null && i < counted.length; i++) {
            if (counters[i] != null) {
                counters[i].add(counted[i]);
            }
        }
        return vectorized ? columns(iterator, selection, conversion) : new LiveRows(iterator, selection, conversion, required);
    }

    private Object columns(scala.collection.Iterator iterator, Selection selection, Conversion conversion) {
        ParquetFileReader file = Internals.file(iterator);
        PageDecompressor.serve(file);
        RowGroups groups = selection.isAll() ? null : RowGroups.before(iterator, file, selection);
        DecimalPages.before(iterator, file);
        boolean untouched = groups == null || groups.isExact();
        if (untouched && conversion == null && batches) {
            return iterator;
        }
        LiveBatches live = new LiveBatches(iterator, untouched ? null : groups, selection, conversion);
        return batches ? (Object) live : new RowsOfBatches(live);
    }
}
