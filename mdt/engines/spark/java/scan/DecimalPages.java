// Presents the decimals of our files to Spark's column reader as integers. The files store them as fixed-length
// big-endian bytes (decision 6). Spark decodes those one by one, each as an object, and never lazily by a dictionary,
// but copies integers a page at a time. The reader is therefore given the type INT32 or INT64 for such a column, and
// pages and dictionaries are rewritten after decompression. The numbers are unchanged, only their bytes differ. Pages
// that refer to a dictionary are not changed.
package mdt.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.Types;
import org.apache.spark.sql.execution.datasources.parquet.ParquetColumn;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

final class DecimalPages extends Groups {
    private final Map lengths = new HashMap(); // ColumnDescriptor of each rewritten column -> bytes of a number in the file
    private Map plain; // ColumnPath -> true if all pages of the column can be rewritten; null before the first use

    private DecimalPages() {}

    /**
     * Inserts itself between a batch reader and the row groups of a file, before the first read, if it reads decimals.
     */
    static void before(Object iterator, ParquetFileReader file) {
        Object reader = Internals.reader(iterator);
        DecimalPages pages = new DecimalPages();
        pages.tell(Internals.columns(reader), file.getRowGroups());
        if (!pages.lengths.isEmpty()) {
            pages.before(reader);
        }
    }

    /** Changes the type of each such column, at any depth, in the reader. */
    private void tell(ParquetColumn column, List groups) {
        for (Object child : Scala.list(column.children())) {
            tell((ParquetColumn) child, groups);
        }
        if (column.descriptor().isDefined() && column.sparkType() instanceof DecimalType) {
            ColumnDescriptor stored = (ColumnDescriptor) column.descriptor().get();
            if (fits(stored.getPrimitiveType(), (DecimalType) column.sparkType()) && isPlain(stored, groups)) {
                ColumnDescriptor descriptor = integers(stored);
                lengths.put(descriptor, stored.getPrimitiveType().getTypeLength());
                Internals.setDescriptor(column, descriptor);
            }
        }
    }

    /** Returns true if a type stores the wanted decimals as bytes that fit into a long. */
    private static boolean fits(PrimitiveType type, DecimalType required) {
        if (type.getPrimitiveTypeName() != PrimitiveType.PrimitiveTypeName.FIXED_LEN_BYTE_ARRAY
                || !(type.getLogicalTypeAnnotation() instanceof LogicalTypeAnnotation.DecimalLogicalTypeAnnotation)) {
            return false;
        }
        LogicalTypeAnnotation.DecimalLogicalTypeAnnotation annotation =
                (LogicalTypeAnnotation.DecimalLogicalTypeAnnotation) type.getLogicalTypeAnnotation();
        return type.getTypeLength() <= Long.BYTES && required.precision() <= Decimal.MAX_LONG_DIGITS()
                && annotation.getPrecision() == required.precision() && annotation.getScale() == required.scale();
    }

    /** Returns true if the file has the column, and all its pages are plain or dictionary-encoded. */
    private boolean isPlain(ColumnDescriptor column, List groups) {
        if (plain == null) {
            plain = new HashMap();
            for (Object group : groups) {
                for (Object item : ((BlockMetaData) group).getColumns()) {
                    ColumnChunkMetaData chunk = (ColumnChunkMetaData) item;
                    boolean before = !Boolean.FALSE.equals(plain.get(chunk.getPath()));
                    plain.put(chunk.getPath(), before && isPlain(chunk));
                }
            }
        }
        return Boolean.TRUE.equals(plain.get(ColumnPath.get(column.getPath())));
    }

    private static boolean isPlain(ColumnChunkMetaData chunk) {
        for (Object item : chunk.getEncodings()) {
            Encoding each = (Encoding) item;
            if (each != Encoding.PLAIN && each != Encoding.RLE && !each.usesDictionary()) {
                return false;
            }
        }
        return true;
    }

    /** Returns a column of decimals as integers, in Spark's type for the number of digits. */
    private static ColumnDescriptor integers(ColumnDescriptor column) {
        PrimitiveType type = column.getPrimitiveType();
        LogicalTypeAnnotation.DecimalLogicalTypeAnnotation annotation =
                (LogicalTypeAnnotation.DecimalLogicalTypeAnnotation) type.getLogicalTypeAnnotation();
        PrimitiveType.PrimitiveTypeName name = annotation.getPrecision() <= Decimal.MAX_INT_DIGITS()
                ? PrimitiveType.PrimitiveTypeName.INT32 : PrimitiveType.PrimitiveTypeName.INT64;
        PrimitiveType integerType = (PrimitiveType) Types.primitive(name, type.getRepetition()).as(annotation).named(type.getName());
        return new ColumnDescriptor(column.getPath(), integerType, column.getMaxRepetitionLevel(), column.getMaxDefinitionLevel());
    }

    PageReadStore next() throws Throwable {
        PageReadStore pages = behind();
        return pages == null ? null : new IntegerGroup(pages, lengths);
    }
}
