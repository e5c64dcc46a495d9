// The pages of a decimal column chunk, fixed-length bytes, as pages of integers (DecimalPages.java).
package mdt.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.parquet.bytes.BytesInput;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.column.page.DataPage;
import org.apache.parquet.column.page.DataPageV1;
import org.apache.parquet.column.page.DictionaryPage;
import org.apache.parquet.column.page.PageReader;
import org.apache.parquet.io.ParquetDecodingException;
import org.apache.parquet.schema.PrimitiveType;

final class IntegerPages implements PageReader {
    private final PageReader delegate;
    private final ColumnDescriptor column; // as integers
    private final int length;
    private final int width;

    IntegerPages(PageReader delegate, ColumnDescriptor column, int length) {
        this.delegate = delegate;
        this.column = column;
        this.length = length;
        this.width = column.getPrimitiveType().getPrimitiveTypeName() == PrimitiveType.PrimitiveTypeName.INT32
                ? Integer.BYTES : Long.BYTES;
    }

    public long getTotalValueCount() {
        return delegate.getTotalValueCount();
    }

    public DictionaryPage readDictionaryPage() {
        DictionaryPage page = delegate.readDictionaryPage();
        if (page == null) {
            return null;
        }
        BytesInput numbers = integers(buffer(page.getBytes()), 0, length, width);
        return new DictionaryPage(numbers, page.getDictionarySize(), page.getEncoding());
    }

    public DataPage readPage() {
        DataPage read = delegate.readPage();
        if (read == null) {
            return null;
        }
        if (!(read instanceof DataPageV1)) { // the only kind in our files
            throw new ParquetDecodingException("a page of decimals of another kind: " + read.getClass().getName());
        }
        DataPageV1 page = (DataPageV1) read;
        if (page.getValueEncoding().usesDictionary()) {
            return page;
        }
        if (page.getValueEncoding() != Encoding.PLAIN) { // excluded by the footer
            throw new ParquetDecodingException("a page of decimals in the encoding " + page.getValueEncoding());
        }
        ByteBuffer stored = buffer(page.getBytes());
        BytesInput bytes = integers(stored, levels(stored), length, width);
        if (!page.getFirstRowIndex().isPresent()) {
            return new DataPageV1(bytes, page.getValueCount(), (int) bytes.size(), page.getStatistics(),
                    page.getRlEncoding(), page.getDlEncoding(), page.getValueEncoding());
        }
        return new DataPageV1(bytes, page.getValueCount(), (int) bytes.size(), (Long) page.getFirstRowIndex().get(),
                (Integer) page.getIndexRowCount().orElse(-1), page.getStatistics(),
                page.getRlEncoding(), page.getDlEncoding(), page.getValueEncoding());
    }

    private static ByteBuffer buffer(BytesInput bytes) {
        try {
            return (ByteBuffer) bytes.toInputStream().slice((int) bytes.size()).slice();
        } catch (IOException damaged) {
            throw new ParquetDecodingException(damaged.getMessage(), damaged);
        }
    }

    /** Returns the size of a page's repetition and definition levels. Each kind begins with its length. */
    private int levels(ByteBuffer bytes) {
        int kinds = (column.getMaxRepetitionLevel() > 0 ? 1 : 0) + (column.getMaxDefinitionLevel() > 0 ? 1 : 0);
        long end = 0;
        for (int i = 0; i < kinds; i++) {
            if (end + Integer.BYTES <= bytes.limit()) {
                end += Integer.reverseBytes(bytes.getInt((int) end)) & 0xFFFFFFFFL;
            }
            end += Integer.BYTES;
        }
        if (end > bytes.limit()) {
            throw new ParquetDecodingException("levels of " + end + " bytes in a page of " + bytes.limit());
        }
        return (int) end;
    }

    /** Returns bytes with the first ones unchanged, followed by numbers converted from length to width bytes each. */
    static BytesInput integers(ByteBuffer source, int first, int length, int width) {
        int valueBytes = source.limit() - first;
        if (valueBytes < 0 || valueBytes % length != 0) {
            throw new ParquetDecodingException(
                    source.limit() + " bytes, the first " + first + " of them levels, are not a page of numbers of " + length);
        }
        int count = valueBytes / length;
        ByteBuffer target = ByteBuffer.wrap(new byte[first + count * width]).order(ByteOrder.LITTLE_ENDIAN);
        target.put(0, source, 0, first);
        int unused = Long.SIZE - Byte.SIZE * length; // unused upper bits of the eight bytes that end with a number
        int lead = Long.BYTES - length;
        for (int i = 0, offset = first, put = first; i < count; i++, offset += length, put += width) {
            long number = offset >= lead ? source.getLong(offset - lead) : leading(source, offset, length);
            number = number << unused >> unused;
            if (width == Long.BYTES) {
                target.putLong(put, number);
            } else {
                target.putInt(put, (int) number);
            }
        }
        return BytesInput.from(target.array());
    }

    /** Returns a number with fewer than eight bytes up to its end. The upper bits are undefined. */
    private static long leading(ByteBuffer source, int offset, int length) {
        long number = 0;
        for (int i = 0; i < length; i++) {
            number = number << Byte.SIZE | source.get(offset + i) & 0xFF;
        }
        return number;
    }
}
