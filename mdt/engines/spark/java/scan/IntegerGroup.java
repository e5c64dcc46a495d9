// A row group with some decimal columns as integers (DecimalPages.java).
package mdt.spark;

import java.util.Map;
import java.util.Optional;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.column.page.PageReader;

final class IntegerGroup implements PageReadStore {
    private final PageReadStore delegate;
    private final Map lengths;

    IntegerGroup(PageReadStore delegate, Map lengths) {
        this.delegate = delegate;
        this.lengths = lengths;
    }

    public PageReader getPageReader(ColumnDescriptor column) {
        PageReader reader = delegate.getPageReader(column); // columns are identified by path, whatever their type
        Integer length = (Integer) lengths.get(column);
        return length == null ? reader : new IntegerPages(reader, column, length.intValue());
    }

    public long getRowCount() {
        return delegate.getRowCount();
    }

    public Optional getRowIndexOffset() {
        return delegate.getRowIndexOffset();
    }

    public Optional getRowIndexes() {
        return delegate.getRowIndexes();
    }

    public void close() {
        delegate.close();
    }
}
