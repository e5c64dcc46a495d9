// A table as a FileIndex, Spark's interface to the files of a relation (HadoopFsRelation). Spark calls sizeInBytes
// while it plans joins, and listFiles once for every scan of a physical plan, with the query's conditions. MdtParquet
// reads exactly the files that listFiles returns. A row in an omitted file is lost, so an answer may have too many
// files but never too few.
//
// This index holds no list of files: it asks a FileSource, and thereby Python, for each scan.
//
//     Python: file_index.py             JVM, driver: this package
//       relation                --->      Factory            creates relations, and adds PinRule to the optimizer
//                                         PinRule            gives a query one Pin
//       _Planner.apply          <---      FileSource.ask     from MdtFileIndex.listFiles, and from PinRule before it
//                                         MeasureRule        gives the optimizer estimates after pruning
//                                         JoinPruning        prunes a side of a join by the values of the other side
//                                         TopPruning         finds the files of the first rows
//                                         TotalsRule         answers count, min and max without files
//                                         TableScan          adds the join values, and shows the figures of plans in Spark's UI
//                                         MdtParquet         reads the files: its head describes the executors
//
// Janino, a small compiler that comes with Spark, compiles all classes of this package in the driver when the first
// frame is created. It supports neither generics nor lambdas: hence the casts.
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
    static final String TOLD = "told"; // explains each plan in the log and Spark's UI, if the query's session requests it
    static final String PLACED = "placed"; // each file has a preferred executor
    static final String FAR = "far"; // the store of the files is remote
    static final String NEWEST = "newest"; // queries read the newest commit, not a past state or another view
    static final String STATISTICS = "statistics"; // Spark's optimizer gets estimates after pruning
    static final String TOP = "top"; // the first rows are read only from files that may have them
    static final String TOTALS = "totals"; // count, min and max are answered without files
    static final String JOINS = "joins"; // joins are pruned by the values of the other side
    static final int ALL = -1; // rows
    final FileSource source;
    final Pin pin; // null: not yet part of an optimized query
    final int rows; // number of rows that satisfy the conditions below and are enough; ALL: all rows are needed
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

    /** Returns the index for a query that needs any such number of rows that satisfy conditions. */
    MdtFileIndex of(int rows, Seq filters) {
        return new MdtFileIndex(source, pin, rows, FileSource.json(filters));
    }

    /** Returns the same index as a part of another query. */
    MdtFileIndex pinned(Pin newPin) {
        return new MdtFileIndex(source, newPin, rows, conditions);
    }

    /**
     * Returns the number of rows that is enough: all, unless Spark passes every condition, so that matching rows are
     * counted.
     */
    private int enough(Seq dataFilters) {
        return rows != ALL && FileSource.json(dataFilters).equals(conditions) ? rows : ALL;
    }

    /** Returns the index of a node of a plan that is an mdt relation, or null for other nodes. */
    static MdtFileIndex of(Object node) {
        if (!(node instanceof LogicalRelation) || !(((LogicalRelation) node).relation() instanceof HadoopFsRelation)) {
            return null;
        }
        FileIndex index = ((HadoopFsRelation) ((LogicalRelation) node).relation()).location();
        return index instanceof MdtFileIndex ? (MdtFileIndex) index : null;
    }

    /** Returns true if a feature above is enabled for the relation. */
    boolean does(String feature) {
        return source.features.contains(feature);
    }

    /** Returns true if Spark's UI shows figures of the query's plans. */
    boolean hasMetrics() {
        return does(TOLD) && pin != null && pin.explains.contains(Pin.METRICS);
    }

    /** Spark refuses to write to a relation with more than one root, which protects the table. */
    public Seq rootPaths() {
        return Scala.seq(new Path(source.root), new Path(source.root, ".write_guard"));
    }

    /** Returns the files to read, in one directory. dataFilters: conditions that Spark evaluates again on every row. */
    public Seq listFiles(
            Seq partitionFilters, Seq dataFilters) {
        String key = key();
        List files = source.files(source.ask(pin, key, TableScan.conditions(dataFilters), enough(dataFilters)), key);
        files = does(PLACED) ? new Affinity(source.context).located(files) : files;
        return Scala.seq(new PartitionDirectory(InternalRow.empty(), Scala.seq(files)));
    }

    /** Only for DataFrame.inputFiles. */
    public String[] inputFiles() {
        List paths = source.ask(pin, key(), null, ALL).paths();
        String[] names = new String[paths.size()];
        for (int i = 0; i < names.length; i++) {
            Path path = (Path) paths.get(i);
            names[i] = (BlockFileSystem.isBlock(path) ? BlockFileSystem.file(path) : path).toUri().toString();
        }
        return names;
    }

    /** For REFRESH TABLE. Nothing is cached. */
    public void refresh() {}

    /** Spark broadcasts the smaller side of a join by this size: the whole table before pruning. */
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
