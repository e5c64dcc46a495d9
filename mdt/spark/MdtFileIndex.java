// The JVM half of mdt/spark/file_index.py: a Spark FileIndex that holds no list of files but asks Python, at each
// scan, which files of which version of the table a query must read. Compiled in the driver by Janino, which knows
// neither generics nor lambdas: hence plain Java 1.4. The bytes of a reply are described in file_index.py.
package mdt.spark;

import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

public class MdtFileIndex implements FileIndex {
    private static final AtomicLong CALLS = new AtomicLong();
    private final Source source;
    private final Pin pin; // null: not yet part of an optimized query

    MdtFileIndex(Source source, Pin pin) {
        this.source = source;
        this.pin = pin;
    }

    public scala.collection.immutable.Seq rootPaths() {
        // Spark refuses to write to a relation with more than one root: this is what protects the table.
        return seq(new Object[] {new Path(source.root), new Path(source.root, ".write_guard")});
    }

    public scala.collection.immutable.Seq listFiles(
            scala.collection.immutable.Seq partitionFilters, scala.collection.immutable.Seq dataFilters) {
        Answer answer = source.ask(pin, key(), dataFilters, true);
        if (source.partitionSchema.length() == 0) {
            return seq(new Object[] {directory(InternalRow.empty(), answer.files())});
        }
        List directories = new ArrayList();
        for (Iterator i = answer.filesByNumber().entrySet().iterator(); i.hasNext(); ) {
            Map.Entry group = (Map.Entry) i.next();
            InternalRow row = new GenericInternalRow(new Object[] {group.getKey()});
            // Spark does not test partition filters again after the scan: they must hold exactly.
            if (matches(row, partitionFilters)) {
                directories.add(directory(row, (List) group.getValue()));
            }
        }
        return seq(directories.toArray());
    }

    public String[] inputFiles() {
        List files = source.ask(pin, key(), null, false).files();
        String[] names = new String[files.size()];
        for (int i = 0; i < names.length; i++) {
            names[i] = ((FileStatusWithMetadata) files.get(i)).getPath().toUri().toString();
        }
        return names;
    }

    public void refresh() {}

    public long sizeInBytes() {
        if (source.bytesNewest < 0) {
            source.ask(null, unpinned(), null, false); // asked for before the query is pinned, and of no consequence to its rows
        }
        return Math.max(1L, source.bytesNewest);
    }

    public StructType partitionSchema() {
        return source.partitionSchema;
    }

    // Equal for two occurrences in one query (so that Spark reuses exchanges), and for one frame used twice.
    public boolean equals(Object other) {
        return other instanceof MdtFileIndex
                && ((MdtFileIndex) other).source == source
                && ((MdtFileIndex) other).pin == pin;
    }

    public int hashCode() {
        return System.identityHashCode(source) * 31 + System.identityHashCode(pin);
    }

    public String toString() {
        return "MdtFileIndex(" + source.root + ")";
    }

    /** Names the running query: by the plan's own pin, else by Spark's root execution, else not at all. */
    private String key() {
        if (pin != null) {
            return pin.key;
        }
        String id = source.context.getLocalProperty("spark.sql.execution.root.id");
        if (id == null) {
            id = source.context.getLocalProperty("spark.sql.execution.id");
        }
        return id != null ? "execution:" + id : unpinned();
    }

    private static String unpinned() {
        return "call:" + CALLS.incrementAndGet();
    }

    private static PartitionDirectory directory(InternalRow values, List files) {
        return new PartitionDirectory(values, seq(files.toArray()));
    }

    static scala.collection.immutable.Seq seq(Object[] values) {
        return scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(values);
    }

    static List list(scala.collection.immutable.Seq values) {
        return CollectionConverters.asJava((scala.collection.Seq) values);
    }

    private static boolean matches(InternalRow row, scala.collection.immutable.Seq filters) {
        for (Iterator i = list(filters).iterator(); i.hasNext(); ) {
            Expression bound = (Expression) ((TreeNode) i.next()).transform(new Bind());
            if (!Boolean.TRUE.equals(bound.eval(row))) {
                return false;
            }
        }
        return true;
    }

    /** Turns the only partition column into a reference to the first field of a row. */
    static class Bind extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            return node instanceof AttributeReference;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (!isDefinedAt(node)) {
                return otherwise.apply(node);
            }
            return new BoundReference(0, ((AttributeReference) node).dataType(), true);
        }
    }

    /** The identity of one optimized query, shared by all of its relations, those in subqueries included. */
    static class Pin {
        private static final AtomicLong NEXT = new AtomicLong();
        private static final ReferenceQueue GONE = new ReferenceQueue();
        private static final Map LIVE = Collections.synchronizedMap(new HashMap());
        final String key = "plan:" + NEXT.incrementAndGet();
        private final Map versions = new HashMap();
        private final Map answers = new HashMap(); // source -> filters as JSON -> Answer: those that hold when read, too

        Pin() {
            LIVE.put(new WeakReference(this, GONE), key);
        }

        /** Remembers the version that a source answered, and refuses another one: the query would mix two. */
        synchronized void agree(Source source, int version) {
            Integer before = (Integer) versions.get(source);
            if (before != null && before.intValue() != version) {
                throw new IllegalStateException("the table's version changed within " + key + "; run the query again");
            }
            versions.put(source, Integer.valueOf(version));
        }

        /** Returns what a source answered to the same filters, or null. */
        synchronized Answer answer(Source source, String filters) {
            Map known = (Map) answers.get(source);
            return known == null ? null : (Answer) known.get(filters);
        }

        synchronized void remember(Source source, String filters, Answer answer) {
            if (!answers.containsKey(source)) {
                answers.put(source, new HashMap());
            }
            ((Map) answers.get(source)).put(filters, answer);
        }

        /** Returns, once, the keys of queries that no longer exist, as a JSON array. */
        static String gone() {
            StringBuilder keys = new StringBuilder("[");
            for (Object each = GONE.poll(); each != null; each = GONE.poll()) {
                keys.append(keys.length() > 1 ? "," : "").append('"').append(LIVE.remove(each)).append('"');
            }
            return keys.append(']').toString();
        }
    }

    /**
     * An optimizer rule: gives all of our relations in a query one pin, so that all are planned at one version, and
     * takes those out of the plan that have no file to read at that version. Spark's own rule for empty relations
     * then removes what they leave empty; it ran before, when nobody knew.
     */
    static class PinRule extends Rule {
        public TreeNode apply(TreeNode plan) {
            if (plan instanceof Subquery) {
                return plan; // optimized again as a part of its query, whose version it must share
            }
            PinSearch search = new PinSearch();
            ((LogicalPlan) plan).foreachWithSubqueries(search);
            if (!search.pins.contains(null)) {
                return plan;
            }
            // Relations that have a pin may have lost their empty companions at its version: they keep it.
            search.pins.remove(null);
            Pin pin = search.pins.size() == 1 ? (Pin) search.pins.iterator().next() : new Pin();
            LogicalPlan pinned = (LogicalPlan) ((LogicalPlan) plan).transformUpWithSubqueries(new PinReplacement(pin));
            EmptyReplacement empty = new EmptyReplacement();
            LogicalPlan without = (LogicalPlan) pinned.transformDownWithSubqueries(empty);
            return empty.found ? propagated(without) : pinned;
        }

        static LogicalPlan propagated(LogicalPlan plan) {
            LogicalPlan inner = (LogicalPlan) plan.transformAllExpressions(new SubqueryPropagation());
            return PropagateEmptyRelation$.MODULE$.apply(inner);
        }

        static MdtFileIndex index(Object node) {
            if (!(node instanceof LogicalRelation)
                    || !(((LogicalRelation) node).relation() instanceof HadoopFsRelation)) {
                return null;
            }
            FileIndex index = ((HadoopFsRelation) ((LogicalRelation) node).relation()).location();
            return index instanceof MdtFileIndex ? (MdtFileIndex) index : null;
        }
    }

    static class PinSearch extends AbstractFunction1 {
        final Set pins = new HashSet();

        public Object apply(Object node) {
            MdtFileIndex index = PinRule.index(node);
            if (index != null) {
                pins.add(index.pin);
            }
            return BoxedUnit.UNIT;
        }
    }

    static class PinReplacement extends AbstractPartialFunction {
        private final Pin pin;

        PinReplacement(Pin pin) {
            this.pin = pin;
        }

        public boolean isDefinedAt(Object node) {
            MdtFileIndex index = PinRule.index(node);
            return index != null && index.pin == null;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (!isDefinedAt(node)) {
                return otherwise.apply(node);
            }
            MdtFileIndex index = PinRule.index(node);
            LogicalRelation logical = (LogicalRelation) node;
            HadoopFsRelation old = (HadoopFsRelation) logical.relation();
            HadoopFsRelation relation = new HadoopFsRelation(new MdtFileIndex(index.source, pin), old.partitionSchema(),
                    old.dataSchema(), old.bucketSpec(), old.fileFormat(), old.options(), old.sparkSession());
            return logical.copy(
                    relation, logical.output(), logical.catalogTable(), logical.isStreaming(), logical.stream());
        }
    }

    /** Puts an empty relation in the place of a pinned one, with the filter above it, that has no file to read. */
    static class EmptyReplacement extends AbstractPartialFunction {
        boolean found = false;
        private final Set known = new HashSet(); // indexes with files: an occurrence without a filter need not ask again

        public boolean isDefinedAt(Object node) {
            MdtFileIndex index = PinRule.index(node instanceof Filter ? ((Filter) node).child() : node);
            if (index == null || !index.source.droppable || (!(node instanceof Filter) && known.contains(index))) {
                return false;
            }
            boolean empty = isEmpty(index, node);
            if (!empty) {
                known.add(index);
            }
            return empty;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (!isDefinedAt(node)) {
                return otherwise.apply(node);
            }
            found = true;
            return PropagateEmptyRelation$.MODULE$.empty((LogicalPlan) node);
        }

        private static boolean isEmpty(MdtFileIndex index, Object node) {
            try {
                return index.source.ask(index.pin, index.pin.key, filters(node), false).count() == 0;
            } catch (py4j.Py4JException failure) {
                return false; // it will say so again when the files are to be read
            }
        }

        /** The filters as Spark will hand them to listFiles, most of the time: with the relation's own column names. */
        private static scala.collection.immutable.Seq filters(Object node) {
            if (!(node instanceof Filter)) {
                return null;
            }
            Filter filter = (Filter) node;
            return DataSourceStrategy$.MODULE$.normalizeExprs(
                    filter.splitConjunctivePredicates(filter.condition()), filter.child().output());
        }
    }

    /** Removes what is empty from the plans of subqueries. */
    static class SubqueryPropagation extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            return node instanceof PlanExpression && ((PlanExpression) node).plan() instanceof LogicalPlan;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (!isDefinedAt(node)) {
                return otherwise.apply(node);
            }
            PlanExpression subquery = (PlanExpression) node;
            return subquery.withNewPlan(PinRule.propagated((LogicalPlan) subquery.plan()));
        }
    }

    /** What Python calls, once per JVM and once per frame. */
    public static class Factory {
        private synchronized void install(ExperimentalMethods session) {
            List rules = new ArrayList(list(session.extraOptimizations()));
            for (int i = 0; i < rules.size(); i++) {
                if (rules.get(i) instanceof PinRule) {
                    return;
                }
            }
            rules.add(new PinRule());
            session.extraOptimizations_$eq(seq(rules.toArray()));
        }

        /** Returns the frame of one relation; columns, partitions: schemas as JSON. In one call: each costs Python. */
        public Dataset relation(Function planner, SparkSession session, String columns, String partitions, String root,
                long bytes, boolean droppable) {
            install(session.experimental());
            StructType parts = (StructType) DataType.fromJson(partitions);
            Source source = new Source(planner, session.sparkContext(), parts, root, bytes, droppable);
            HadoopFsRelation relation = new HadoopFsRelation(new MdtFileIndex(source, null), parts,
                    ((StructType) DataType.fromJson(columns)).asNullable(), scala.Option.empty(),
                    new ParquetFileFormat(), scala.collection.immutable.Map$.MODULE$.empty(), session);
            return session.baseRelationToDataFrame(relation);
        }

        /** Returns a frame with a query of its own over an analysed plan. */
        public Dataset anew(SparkSession session, LogicalPlan plan) {
            return Dataset.ofRows(session, plan);
        }
    }

    /** Where the files of one frame come from: the Python planner, and the versions that it sent lately. */
    static class Source {
        private static final int VERSIONS_MAX = 8; // queries that run side by side may be pinned to different ones
        final Function planner;
        final SparkContext context;
        final StructType partitionSchema;
        final String root;
        final boolean droppable; // whether the optimizer asks if there are files at all
        volatile long bytesNewest;
        private int newest = -1;
        private final Map versions = new LinkedHashMap(16, 0.75f, true);

        Source(Function planner, SparkContext context, StructType partitions, String root, long bytes, boolean droppable) {
            this.planner = planner;
            this.context = context;
            this.partitionSchema = partitions;
            this.root = root;
            this.bytesNewest = bytes;
            this.droppable = droppable;
        }

        /** Asks Python which files to read; reading: they are about to be. */
        Answer ask(Pin pin, String key, scala.collection.immutable.Seq expressions, boolean reading) {
            String filters = CatalystJson.array(expressions == null ? Collections.EMPTY_LIST : list(expressions));
            Answer before = pin == null ? null : pin.answer(this, filters);
            if (before != null) {
                return before;
            }
            Map known = known(); // held during the call: a version that Python does not send must still be here after it
            String request = "{\"query\":\"" + key + "\",\"reading\":" + reading + ",\"known\":" + known.keySet()
                    + ",\"gone\":" + Pin.gone() + ",\"filters\":" + filters + "}";
            ByteBuffer reply = read((byte[]) planner.apply(request));
            int version = reply.getInt();
            int flags = reply.getInt();
            int[] keep = ints(reply, reply.getInt());
            Snapshot snapshot =
                    (flags & 1) != 0 ? new Snapshot(reply) : (Snapshot) known.get(Integer.valueOf(version));
            remember(version, snapshot);
            Answer answer = new Answer(snapshot, keep);
            if (pin != null) {
                pin.agree(this, version);
                if ((flags & 2) != 0) {
                    pin.remember(this, filters, answer);
                }
            }
            return answer;
        }

        private synchronized Map known() {
            return new HashMap(versions);
        }

        private synchronized void remember(int version, Snapshot snapshot) {
            versions.put(Integer.valueOf(version), snapshot);
            if (versions.size() > VERSIONS_MAX) {
                versions.remove(versions.keySet().iterator().next());
            }
            if (version >= newest) {
                newest = version;
                bytesNewest = snapshot.bytes;
            }
        }

        private static ByteBuffer read(byte[] reply) {
            ByteBuffer bytes = ByteBuffer.wrap(reply);
            if (bytes.get() != 0) {
                String name = new String(reply, 1, reply.length - 1, StandardCharsets.UTF_8);
                try {
                    bytes = ByteBuffer.wrap(Files.readAllBytes(Paths.get(name, new String[0])));
                    Files.delete(Paths.get(name, new String[0]));
                } catch (java.io.IOException failure) {
                    throw new java.io.UncheckedIOException(failure);
                }
            }
            return bytes.order(ByteOrder.LITTLE_ENDIAN);
        }

        static int[] ints(ByteBuffer bytes, int count) {
            if (count < 0) {
                return null;
            }
            int[] values = new int[count];
            IntBuffer view = bytes.asIntBuffer();
            view.get(values);
            bytes.position(bytes.position() + 4 * count);
            return values;
        }
    }

    /** All files of one version. */
    static class Snapshot {
        final FileStatusWithMetadata[] files;
        final int[] numbers;
        final long bytes;

        Snapshot(ByteBuffer from) {
            int n = from.getInt();
            long[] sizes = longs(from, n);
            long[] times = longs(from, n);
            this.numbers = Source.ints(from, n);
            int[] ends = Source.ints(from, n);
            int base = from.position() + from.arrayOffset();
            this.files = new FileStatusWithMetadata[n];
            long total = 0;
            for (int i = 0; i < n; i++) {
                int start = i == 0 ? 0 : ends[i - 1];
                String uri = new String(from.array(), base + start, ends[i] - start, StandardCharsets.UTF_8);
                FileStatus status =
                        new FileStatus(sizes[i], false, 1, 128L << 20, times[i], new Path(URI.create(uri)));
                files[i] = new FileStatusWithMetadata(status, FileStatusWithMetadata.$lessinit$greater$default$2());
                total += sizes[i];
            }
            this.bytes = total;
        }

        private static long[] longs(ByteBuffer from, int count) {
            long[] values = new long[count];
            from.asLongBuffer().get(values);
            from.position(from.position() + 8 * count);
            return values;
        }
    }

    /** The files of one version that one scan must read; keep == null: all. */
    static class Answer {
        private final Snapshot snapshot;
        private final int[] keep;

        Answer(Snapshot snapshot, int[] keep) {
            this.snapshot = snapshot;
            this.keep = keep;
        }

        int count() {
            return keep == null ? snapshot.files.length : keep.length;
        }

        private int position(int i) {
            return keep == null ? i : keep[i];
        }

        List files() {
            List files = new ArrayList(count());
            for (int i = 0; i < count(); i++) {
                files.add(snapshot.files[position(i)]);
            }
            return files;
        }

        Map filesByNumber() {
            Map groups = new TreeMap();
            for (int i = 0; i < count(); i++) {
                Integer number = Integer.valueOf(snapshot.numbers[position(i)]);
                if (!groups.containsKey(number)) {
                    groups.put(number, new ArrayList());
                }
                ((List) groups.get(number)).add(snapshot.files[position(i)]);
            }
            return groups;
        }
    }
}
