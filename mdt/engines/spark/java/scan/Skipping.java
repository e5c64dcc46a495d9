// Row groups in which this release of Spark skips rows inside pages correctly. Up to 4.1 its reader of delta-encoded
// integers (DELTA_BINARY_PACKED) returns to the first value of the page if it skips zero rows, as it does between runs
// of rows, and returns wrong values without an error. New files have no such columns, but older ones and Hudi's files
// may. Their row groups are read completely.
package mdt.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.parquet.bytes.ByteBufferInputStream;
import org.apache.parquet.bytes.HeapByteBufferAllocator;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.column.values.delta.DeltaBinaryPackingValuesWriterForInteger;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.spark.sql.execution.datasources.parquet.VectorizedDeltaBinaryPackedReader;

final class Skipping {
    private static final int VALUES = 64;
    static final boolean IS_RIGHT = isRight();

    private Skipping() {}

    /**
     * Returns true if rows inside the pages of a row group can be skipped. Parquet must also know where its pages
     * begin.
     */
    static boolean isSafe(BlockMetaData group) {
        for (Object item : group.getColumns()) {
            ColumnChunkMetaData column = (ColumnChunkMetaData) item;
            if (column.getOffsetIndexReference() == null // small files have none
                    || !IS_RIGHT && column.getEncodings().contains(Encoding.DELTA_BINARY_PACKED)) {
                return false;
            }
        }
        return true;
    }

    private static boolean isRight() {
        DeltaBinaryPackingValuesWriterForInteger writer =
                new DeltaBinaryPackingValuesWriterForInteger(VALUES, 1 << 16, new HeapByteBufferAllocator());
        for (int i = 0; i < VALUES; i++) {
            writer.writeInteger(i * i);
        }
        try {
            VectorizedDeltaBinaryPackedReader reader = new VectorizedDeltaBinaryPackedReader();
            reader.initFromPage(VALUES, ByteBufferInputStream.wrap(new ByteBuffer[] {ByteBuffer.wrap(writer.getBytes().toByteArray())}));
            reader.skipIntegers(VALUES / 2);
            reader.skipIntegers(0);
            return reader.readInteger() == VALUES / 2 * (VALUES / 2);
        } catch (IOException failure) {
            return false;
        } finally {
            writer.close();
        }
    }
}
