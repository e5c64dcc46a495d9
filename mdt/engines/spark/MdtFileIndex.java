// The JVM half of mdt/engines/spark/file_index.py: a Spark FileIndex that holds no list of files but asks Python, at each
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
import java.util.Arrays;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.DeduplicateRelations$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.optimizer.CombineUnions$;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.plans.logical.Union;
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
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

public class MdtFileIndex implements FileIndex {
    private static final AtomicLong CALLS = new AtomicLong();
    private static final String UNPINNED = "call:";
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
        String key = key();
        if (pin == null && source.rest != null && source.rest.mayHaveFiles(key)) {
            throw new IllegalStateException("this Spark session does not filter the deleted rows of " + source.root
                    + "; read the table with mdt.read in the session that runs the query");
        }
        Answer answer = source.ask(pin, key, dataFilters, true);
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
        long rest = pin == null && source.rest != null ? new MdtFileIndex(source.rest.dirty, null).sizeInBytes() : 0;
        return Math.max(1L, source.bytesNewest + rest);
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
        return UNPINNED + CALLS.incrementAndGet();
    }

    /** The options of our relations: Parquet compares every page with its checksum. */
    static scala.collection.immutable.Map options() {
        return new scala.collection.immutable.Map.Map1("parquet.page.verify-checksum.enabled", "true");
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
        final Map columns = new HashMap(); // source -> names of all of its columns that the query uses
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

        /** From now on files are read as they are: parts of the query were planned before all of its columns were known. */
        synchronized void readWhole() {
            columns.clear();
            answers.clear();
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
            if (search.pins.isEmpty()) {
                findColumns((LogicalPlan) plan, pin);
            } else {
                pin.readWhole();
            }
            LogicalPlan whole = (LogicalPlan) ((LogicalPlan) plan).transformDownWithSubqueries(new Expansion(pin));
            whole = CombineUnions$.MODULE$.apply(whole);
            LogicalPlan pinned = (LogicalPlan) whole.transformUpWithSubqueries(new PinReplacement(pin));
            EmptyReplacement empty = new EmptyReplacement();
            LogicalPlan without = (LogicalPlan) pinned.transformDownWithSubqueries(empty);
            return empty.found ? propagated(without) : pinned;
        }

        /** Notes which columns of each source the query uses, wherever it stands in the plan. */
        private static void findColumns(LogicalPlan node, Pin pin) {
            LogicalRelation leaf = Expansion.leaf(node);
            if (leaf != null) {
                Source source = index(leaf).source;
                if (!pin.columns.containsKey(source)) {
                    pin.columns.put(source, new TreeSet());
                }
                for (Iterator i = list(Expansion.wanted(node, leaf)).iterator(); i.hasNext(); ) {
                    ((Set) pin.columns.get(source)).add(((Attribute) i.next()).name());
                }
            }
            List below = new ArrayList(list(node.subqueries()));
            LogicalPlan filter = leaf == null ? null : Expansion.filter(node);
            below.addAll(leaf == null ? list(node.children()) : filter == null || filter == node ? Collections.EMPTY_LIST : list(filter.subqueries()));
            for (Iterator i = below.iterator(); i.hasNext(); ) {
                findColumns((LogicalPlan) i.next(), pin);
            }
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
            LogicalRelation logical = (LogicalRelation) node;
            HadoopFsRelation relation = relation(logical, PinRule.index(node).source, pin);
            return logical.copy(
                    relation, logical.output(), logical.catalogTable(), logical.isStreaming(), logical.stream());
        }

        /** Returns the files of a source with the columns, perhaps pruned, of another's relation. */
        static HadoopFsRelation relation(LogicalRelation like, Source source, Pin pin) {
            HadoopFsRelation old = (HadoopFsRelation) like.relation();
            return new HadoopFsRelation(new MdtFileIndex(source, pin), source.partitionSchema, old.dataSchema(),
                    old.bucketSpec(), old.fileFormat(), old.options(), old.sparkSession());
        }
    }

    /**
     * Puts the union of clean and dirty files in the place of a relation that stands for both. So late, because rules of
     * Spark fail on a union (correlated subqueries above it), and because most queries need none. The dirty branch is
     * optimized by itself: filters and columns find their way through its join.
     */
    static class Expansion extends AbstractPartialFunction {
        private final Pin pin;

        Expansion(Pin pin) {
            this.pin = pin;
        }

        static Filter filter(Object node) {
            Object inner = node instanceof Project ? ((Project) node).child() : node;
            return inner instanceof Filter ? (Filter) inner : null;
        }

        static LogicalRelation leaf(Object node) {
            Object inner = node instanceof Project ? ((Project) node).child() : node;
            inner = inner instanceof Filter ? ((Filter) inner).child() : inner;
            MdtFileIndex index = PinRule.index(inner);
            return index != null && index.pin == null && index.source.rest != null ? (LogicalRelation) inner : null;
        }

        public boolean isDefinedAt(Object node) {
            return leaf(node) != null;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            LogicalRelation leaf = leaf(node);
            if (leaf == null) {
                return otherwise.apply(node);
            }
            LogicalPlan clean = (LogicalPlan) ((LogicalPlan) node).transformUp(new PinReplacement(pin));
            Source source = PinRule.index(leaf).source;
            if (!source.rest.hasFiles(pin, filter(node))) {
                return clean;
            }
            if (!(node instanceof Project)) {
                return union(leaf, leaf.output(), clean, filter(node));
            }
            Project project = (Project) node;
            if (onlyColumns(project) && (filter(node) == null || isPlain(filter(node).condition()))) {
                return union(leaf, project.projectList(), clean, filter(node));
            }
            scala.collection.immutable.Seq columns = wanted(project, leaf);
            LogicalPlan first = new Project(columns, ((Project) clean).child());
            return new Project(project.projectList(), union(leaf, columns, first, filter(node)));
        }

        /** The columns of a leaf that the filter and the project above it use, all of them without a project. */
        static scala.collection.immutable.Seq wanted(LogicalPlan node, LogicalRelation leaf) {
            if (!(node instanceof Project)) {
                return leaf.output();
            }
            Filter filter = filter(node);
            List wanted = new ArrayList();
            for (Iterator i = list(leaf.output()).iterator(); i.hasNext(); ) {
                Attribute each = (Attribute) i.next();
                if (node.references().contains(each) || (filter != null && filter.references().contains(each))) {
                    wanted.add(each);
                }
            }
            return seq(wanted.toArray());
        }

        private static boolean onlyColumns(Project project) {
            for (Iterator i = list(project.projectList()).iterator(); i.hasNext(); ) {
                if (!(i.next() instanceof Attribute)) {
                    return false;
                }
            }
            return true;
        }

        /** Whether a condition may be tested below the dirty branch's join, and optimized a second time. */
        private static boolean isPlain(Expression condition) {
            return condition.deterministic() && !SubqueryExpression$.MODULE$.hasSubquery(condition);
        }

        /** columns: attributes of the leaf, all that filter tests among them unless it is plain. */
        private LogicalPlan union(
                LogicalRelation leaf, scala.collection.immutable.Seq columns, LogicalPlan clean, Filter filter) {
            Source source = PinRule.index(leaf).source;
            LogicalPlan rows = source.rest.live(leaf, pin);
            Map names = new HashMap(); // of the leaf -> of the dirty branch
            Iterator mine = list(rows.output()).iterator();
            for (Iterator i = list(leaf.output()).iterator(); i.hasNext(); ) {
                names.put(((Attribute) i.next()).exprId(), mine.next());
            }
            List inside = new ArrayList(); // conditions that the dirty branch is optimized with
            List after = new ArrayList();
            if (filter != null) {
                for (Iterator i = list(filter.splitConjunctivePredicates(filter.condition())).iterator(); i.hasNext(); ) {
                    Expression each = (Expression) i.next();
                    (isPlain(each) ? inside : after).add(((TreeNode) each).transform(new Renaming(names)));
                }
            }
            List outputs = new ArrayList();
            for (Iterator i = list(columns).iterator(); i.hasNext(); ) {
                outputs.add(names.get(((Attribute) i.next()).exprId()));
            }
            LogicalPlan dirty = new Project(seq(outputs.toArray()), filtered(inside, rows));
            dirty = (LogicalPlan) session(leaf).sessionState().optimizer().execute(dirty);
            return new Union(seq(new Object[] {clean, filtered(after, dirty)}), false, false);
        }

        private static LogicalPlan filtered(List conditions, LogicalPlan plan) {
            LogicalPlan found = plan;
            for (Iterator i = conditions.iterator(); i.hasNext(); ) {
                found = new Filter((Expression) i.next(), found);
            }
            return found;
        }

        static SparkSession session(LogicalRelation leaf) {
            return (SparkSession) ((HadoopFsRelation) leaf.relation()).sparkSession();
        }
    }

    /** Puts other attributes in the place of those with the same ids. */
    static class Renaming extends AbstractPartialFunction {
        private final Map names;

        Renaming(Map names) {
            this.names = names;
        }

        public boolean isDefinedAt(Object node) {
            return node instanceof Attribute && names.containsKey(((Attribute) node).exprId());
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            return isDefinedAt(node) ? names.get(((Attribute) node).exprId()) : otherwise.apply(node);
        }
    }

    /** The files of a merged table whose rows are not all live, and the positions of those that are not. */
    static class Rest {
        private static final int PLANS_MAX = 32; // one for each set of nested columns that queries read
        private final Map plans = new HashMap();
        final Source dirty;
        private final Source deleted;
        private final StructType deletedColumns;
        private final String number;
        private final String live;

        /** number, live: SQL conditions that join a row with its file's deleted positions, and that then hold if it lives. */
        Rest(Source dirty, Source deleted, StructType deletedColumns, String number, String live) {
            this.dirty = dirty;
            this.deleted = deleted;
            this.deletedColumns = deletedColumns;
            this.number = number;
            this.live = live;
        }

        /** Without a pin; of a call that is no query's, nothing can be said: the next one may see another version. */
        boolean mayHaveFiles(String key) {
            return key.startsWith(UNPINNED) || dirty.ask(null, key, null, false).count() > 0;
        }

        boolean hasFiles(Pin pin, Filter filter) {
            try {
                return dirty.ask(pin, pin.key, EmptyReplacement.filters(filter), false).count() > 0;
            } catch (py4j.Py4JException failure) {
                return true; // it will say so again when the files are to be read
            }
        }

        /** Returns the live rows of dirty files, columns as those of a relation; attributes have new ids each time. */
        LogicalPlan live(LogicalRelation like, Pin pin) {
            LogicalPlan known = analyzed(like);
            // As Spark does it for a common table expression that is used twice: the right side gets the new ids.
            Join twice = new Join(known, known, Inner$.MODULE$, scala.Option.empty(), JoinHint$.MODULE$.NONE());
            LogicalPlan fresh = ((Join) DeduplicateRelations$.MODULE$.apply(twice)).right();
            return (LogicalPlan) fresh.transformUp(new PinReplacement(pin));
        }

        /** Returns the same without a pin: analysis takes longer than all the rest. */
        private synchronized LogicalPlan analyzed(LogicalRelation like) {
            List key = new ArrayList(); // the types of nested columns are those that the query needs
            for (Iterator i = list(like.output()).iterator(); i.hasNext(); ) {
                Attribute each = (Attribute) i.next();
                key.add(each.name());
                key.add(each.dataType());
            }
            LogicalPlan known = (LogicalPlan) plans.get(key);
            if (known == null) {
                if (plans.size() >= PLANS_MAX) {
                    plans.clear();
                }
                known = analyze(like);
                plans.put(key, known);
            }
            return known;
        }

        private LogicalPlan analyze(LogicalRelation like) {
            SparkSession session = Expansion.session(like);
            Dataset rows = session.baseRelationToDataFrame(PinReplacement.relation(like, dirty, null));
            Dataset bits = session.baseRelationToDataFrame(new HadoopFsRelation(new MdtFileIndex(deleted, null),
                    deleted.partitionSchema, deletedColumns, scala.Option.empty(), new ParquetFileFormat(),
                    options(), session))
                    .toDF(new String[] {"__mdt_number", "__mdt_words"});
            Column metadata = rows.metadataColumn("_metadata");
            Dataset numbered = rows.withColumn("__mdt_row", metadata.getField("row_index"));
            List columns = new ArrayList();
            for (Iterator i = list(like.output()).iterator(); i.hasNext(); ) {
                Attribute each = (Attribute) i.next();
                if (Arrays.asList(((HadoopFsRelation) like.relation()).dataSchema().fieldNames()).contains(each.name())) {
                    columns.add(rows.col("`" + each.name().replace("`", "``") + "`"));
                } else { // of the file: the query asked for it by name
                    numbered = numbered.withColumn("__mdt_metadata", fields(metadata, (StructType) each.dataType()));
                    columns.add(functions.col("__mdt_metadata"));
                }
            }
            return numbered.join(functions.broadcast(bits), functions.expr(number), "left")
                    .where(functions.expr(live)).select(seq(columns.toArray())).queryExecution().analyzed();
        }

        private static Column fields(Column of, StructType wanted) {
            List fields = new ArrayList();
            String[] names = wanted.fieldNames();
            for (int i = 0; i < names.length; i++) {
                fields.add(of.getField(names[i]).as(names[i]));
            }
            return functions.struct(seq(fields.toArray()));
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
        static scala.collection.immutable.Seq filters(Object node) {
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
            return frame(source(planner, session, partitions, root, bytes, droppable, null), session, columns);
        }

        /** Returns the frame of a merged table; numbers, deletedColumns: schemas as JSON; see Rest for number and live. */
        public Dataset merged(Function clean, Function dirty, Function deleted, SparkSession session, String columns,
                String numbers, String deletedColumns, String number, String live, String root) {
            String none = new StructType().json();
            Rest rest = new Rest(source(dirty, session, numbers, root, -1L, true, null),
                    source(deleted, session, none, root, 1L, false, null),
                    (StructType) DataType.fromJson(deletedColumns), number, live);
            return frame(source(clean, session, none, root, -1L, true, rest), session, columns);
        }

        private Source source(Function planner, SparkSession session, String partitions, String root, long bytes,
                boolean droppable, Rest rest) {
            install(session.experimental());
            StructType parts = (StructType) DataType.fromJson(partitions);
            return new Source(planner, session.sparkContext(), parts, root, bytes, droppable, rest);
        }

        private static Dataset frame(Source source, SparkSession session, String columns) {
            StructType schema = (StructType) DataType.fromJson(columns);
            scala.collection.immutable.Map options = options();
            if (holdsFloats(schema)) {
                // Parquet's own filter looks for the bits of 0.0 in dictionaries and skips row groups of -0.0. Files
                // that we write now have no dictionary of floats; older ones, and those of others, may.
                options = (scala.collection.immutable.Map) options.updated("parquet.filter.dictionary.enabled", "false");
            }
            HadoopFsRelation relation = new HadoopFsRelation(new MdtFileIndex(source, null), source.partitionSchema,
                    schema.asNullable(), scala.Option.empty(), new ParquetFileFormat(), options, session);
            return session.baseRelationToDataFrame(relation);
        }

        /** Returns whether floating point numbers occur anywhere in a type. */
        private static boolean holdsFloats(DataType type) {
            if (type instanceof ArrayType) {
                return holdsFloats(((ArrayType) type).elementType());
            }
            if (type instanceof MapType) {
                return holdsFloats(((MapType) type).keyType()) || holdsFloats(((MapType) type).valueType());
            }
            if (type instanceof StructType) {
                StructField[] fields = ((StructType) type).fields();
                for (int i = 0; i < fields.length; i++) {
                    if (holdsFloats(fields[i].dataType())) {
                        return true;
                    }
                }
                return false;
            }
            return type instanceof FloatType || type instanceof DoubleType;
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
        final Rest rest; // null: these files are all
        final boolean droppable; // whether the optimizer asks if there are files at all
        volatile long bytesNewest;
        private int newest = -1;
        private final Map versions = new LinkedHashMap(16, 0.75f, true);

        Source(Function planner, SparkContext context, StructType partitions, String root, long bytes, boolean droppable,
                Rest rest) {
            this.planner = planner;
            this.context = context;
            this.partitionSchema = partitions;
            this.root = root;
            this.bytesNewest = bytes;
            this.droppable = droppable;
            this.rest = rest;
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
                    + ",\"gone\":" + Pin.gone() + ",\"columns\":" + (pin == null ? "null" : CatalystJson.texts((Set) pin.columns.get(this)))
                    + ",\"filters\":" + filters + "}";
            ByteBuffer reply = read((byte[]) planner.apply(request));
            int version = reply.getInt();
            int flags = reply.getInt();
            int[] keep = ints(reply, reply.getInt());
            Snapshot snapshot =
                    (flags & 1) != 0 ? new Snapshot(reply) : (Snapshot) known.get(Integer.valueOf(version));
            remember(version, snapshot);
            Answer answer = new Answer(snapshot, keep, (flags & 4) != 0 ? new Snapshot(reply) : null);
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
            from.position(from.position() + (n == 0 ? 0 : ends[n - 1]));
        }

        private static long[] longs(ByteBuffer from, int count) {
            long[] values = new long[count];
            from.asLongBuffer().get(values);
            from.position(from.position() + 8 * count);
            return values;
        }
    }

    /** The files that one scan must read: those of one version, keep == null: all, and others that stand for the rest. */
    static class Answer {
        private final Snapshot snapshot;
        private final int[] keep;
        private final Snapshot others; // null: none

        Answer(Snapshot snapshot, int[] keep, Snapshot others) {
            this.snapshot = snapshot;
            this.keep = keep;
            this.others = others;
        }

        int count() {
            return kept() + (others == null ? 0 : others.files.length);
        }

        private int kept() {
            return keep == null ? snapshot.files.length : keep.length;
        }

        private int position(int i) {
            return keep == null ? i : keep[i];
        }

        List files() {
            List files = new ArrayList(count());
            for (int i = 0; i < kept(); i++) {
                files.add(snapshot.files[position(i)]);
            }
            if (others != null) {
                files.addAll(Arrays.asList(others.files));
            }
            return files;
        }

        /** Groups of files by number; the others have none. */
        Map filesByNumber() {
            Map groups = new TreeMap();
            for (int i = 0; i < kept(); i++) {
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
