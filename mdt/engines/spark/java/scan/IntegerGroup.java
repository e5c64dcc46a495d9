// A row group with some decimal columns as integers (DecimalPages.java).
package mdt.spark;

import java.util.Map;
import java.util.Optional;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.column.page.PageReader;

final class IntegerGroup implements PageReadStore {
    private final PageReadStore behind;
    private final Map lengths;

    IntegerGroup(PageReadStore behind, Map lengths) {
        this.behind = behind;
        this.lengths = lengths;
    }

    public PageReader getPageReader(ColumnDescriptor column) {
        PageReader found = behind.getPageReader(column); // columns are identified by path, whatever their type
        Integer length = (Integer) lengths.get(column);
        return length == null ? found : new IntegerPages(found, column, length.intValue());
    }

    public long getRowCount() {
        return behind.getRowCount();
    }

    public Optional getRowIndexOffset() {
        return behind.getRowIndexOffset();
    }

    public Optional getRowIndexes() {
        return behind.getRowIndexes();
    }

    public void close() {
        behind.close();
    }
}
