// What Spark takes for the directory of a table: a FileIndex, the interface that a relation of files (HadoopFsRelation) has
// for "which files are there?". Spark calls sizeInBytes while it plans joins, and listFiles once for every scan of a physical
// plan, with the query's own conditions; whatever listFiles returns is read by MdtParquet, and nothing else is. A row in a file
// that is left out is lost, so an answer may name too many files and never too few.
//
// This one holds no list of files: it asks a FileSource, and so Python, at each scan.
//
//     Python: file_index.py             JVM, driver: this package
//       relation                --->      Factory            makes relations, and adds PinRule to the optimizer
//                                         PinRule            gives a query one Pin
//       _Planner.apply          <---      FileSource.ask     from MdtFileIndex.listFiles, and from PinRule before it
//                                         MeasureRule        tells the optimizer what is left after pruning
//                                         JoinPruning        lets sides of joins ask each other which values they have
//                                         TopPruning         finds where the first rows may be
//                                         TotalsRule         answers count, min and max without files
//                                         TableScan          brings the answers, and shows the figures of plans in Spark's UI
//                                         MdtParquet         how the files are read: its head has the second half of the way
//
// All classes of this package are compiled in the driver by Janino, a small compiler that comes with Spark, when the first
// frame is made. It knows neither generics nor lambdas: hence plain Java 1.4, casts included.
package mdt.spark;

import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

public class MdtFileIndex implements FileIndex {
    static final String TOLD = "told"; // the log and Spark's UI are told of each plan, if the session of the query wants it
    static final String PLACED = "placed"; // a file has an executor that it is read by
    static final String FAR = "far"; // the store of the files is
    static final String STATISTICS = "statistics"; // Spark's optimizer is told what is left after pruning
    static final String TOP = "top"; // first rows are looked for where they may be
    static final String TOTALS = "totals"; // count, min and max are answered without files
    static final String JOINS = "joins"; // other sides of joins are asked for values
    static final int ALL = -1; // rows
    final FileSource source;
    final Pin pin; // null: not yet part of an optimized query
    final int rows; // that fulfil the conditions below, of which any will do; ALL: every one is wanted
    private final String conditions; // as JSON; null with ALL

    MdtFileIndex(FileSource source, Pin pin) {
        this(source, pin, ALL, null);
    }

    private MdtFileIndex(FileSource source, Pin pin, int rows, String conditions) {
        this.source = source;
        this.pin = pin;
        this.rows = rows;
        this.conditions = conditions;
    }

    /** Returns the index of a relation of which a query wants so many rows that fulfil conditions, and no matter which. */
    MdtFileIndex of(int wanted, Seq filters) {
        return new MdtFileIndex(source, pin, wanted, FileSource.json(filters));
    }

    /** Returns the same index as a part of another query. */
    MdtFileIndex pinned(Pin to) {
        return new MdtFileIndex(source, to, rows, conditions);
    }

    /** Returns how many rows are enough: all of them, unless Spark tells every condition, so that rows are counted that fulfil them. */
    private int enough(Seq dataFilters) {
        return rows != ALL && FileSource.json(dataFilters).equals(conditions) ? rows : ALL;
    }

    /** Returns the index of a node of a plan that is a relation of ours, null for any other node. */
    static MdtFileIndex of(Object node) {
        if (!(node instanceof LogicalRelation) || !(((LogicalRelation) node).relation() instanceof HadoopFsRelation)) {
            return null;
        }
        FileIndex index = ((HadoopFsRelation) ((LogicalRelation) node).relation()).location();
        return index instanceof MdtFileIndex ? (MdtFileIndex) index : null;
    }

    /** Returns whether something of the above is done for the relation. */
    boolean does(String what) {
        return source.does.contains(what);
    }

    /** Returns whether Spark's UI is told figures of the query's plans. */
    boolean hasMetrics() {
        return does(TOLD) && pin != null && pin.explains.contains(Pin.METRICS);
    }

    /** Spark refuses to write to a relation with more than one root: this is what protects the table. */
    public Seq rootPaths() {
        return Scala.seq(new Object[] {new Path(source.root), new Path(source.root, ".write_guard")});
    }

    /** Returns the files to read, in one directory. dataFilters: conditions that Spark tests again on every row. */
    public Seq listFiles(
            Seq partitionFilters, Seq dataFilters) {
        String key = key();
        List files = source.files(source.ask(pin, key, TableScan.conditions(dataFilters), enough(dataFilters)), key);
        files = does(PLACED) ? new Affinity(source.context).located(files) : files;
        return Scala.seq(new Object[] {new PartitionDirectory(InternalRow.empty(), Scala.seq(files))});
    }

    /** For DataFrame.inputFiles alone. */
    public String[] inputFiles() {
        List paths = source.ask(pin, key(), null, ALL).paths();
        String[] names = new String[paths.size()];
        for (int i = 0; i < names.length; i++) {
            Path path = (Path) paths.get(i);
            names[i] = (BlockFileSystem.isBlock(path) ? BlockFileSystem.file(path) : path).toUri().toString();
        }
        return names;
    }

    /** For REFRESH TABLE: there is nothing to forget. */
    public void refresh() {}

    /** Spark broadcasts the smaller side of a join by this: the whole table, before anything is pruned. */
    public long sizeInBytes() {
        return Math.max(1L, source.bytes());
    }

    public StructType partitionSchema() {
        return new StructType();
    }

    /** Equal for two occurrences in one query (so that Spark reuses exchanges), and for one frame used twice. */
    public boolean equals(Object other) {
        return other instanceof MdtFileIndex
                && ((MdtFileIndex) other).source == source
                && ((MdtFileIndex) other).pin == pin
                && ((MdtFileIndex) other).rows == rows
                && (rows == ALL || ((MdtFileIndex) other).conditions.equals(conditions));
    }

    public int hashCode() {
        return System.identityHashCode(source) * 31 + System.identityHashCode(pin);
    }

    public String toString() {
        return "MdtFileIndex(" + source.root + ")";
    }

    private String key() {
        return pin != null ? pin.key : QueryKey.running(source.context);
    }
}
