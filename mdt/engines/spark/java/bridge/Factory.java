// The entry point for Python over Py4J, called once per frame. A call from Python costs at least 0.1 ms, so each method
// does all the work of one request and takes only text and numbers.
package mdt.spark;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.function.Function;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

public class Factory {
    private Shipment shipment;
    private final Map extended = Collections.synchronizedMap(new WeakHashMap()); // extensions of sessions, shared with newer sessions

    /** Must be called first. jar: path of the JAR with the classes of this package. */
    public void prepare(String jar) throws Exception {
        Internals.probe();
        shipment = new Shipment(new File(jar));
    }

    /**
     * Registers format("mdt") in a session and connects it to Python. answers: the function that Python.java calls.
     * Returns true if Spark finds the format.
     */
    public boolean enable(SparkSession session, Function answers) {
        Python.answeredBy(answers);
        shipment.to(session.sparkContext());
        install(session);
        analyze(session, Rules.EARLY);
        analyze(session, Rules.LATE);
        Functions.known(session);
        try {
            return DataSource.lookupDataSource(MdtSource.NAME, session.sessionState().conf()) == MdtSource.class;
        } catch (Exception unknown) { // Scala methods do not declare their exceptions
            return false;
        }
    }

    /** Returns the settings of a session whose names begin with a prefix, as JSON. */
    public String settings(SparkSession session, String prefix) {
        Map settings = new HashMap(Scala.map(session.conf().getAll()));
        for (Iterator i = settings.keySet().iterator(); i.hasNext(); ) {
            if (!((String) i.next()).startsWith(prefix)) {
                i.remove();
            }
        }
        return Json.text(settings);
    }

    /**
     * Returns the frame of a relation. number: of its planner in Python; columns: schema as JSON; forms: older versions
     * of the columns (Forms.java); featureNames: names of MdtFileIndex, separated by commas; footerBytes, vectorBytes: cache
     * sizes of an executor for footers and deletion vectors.
     */
    public Dataset relation(Function planner, long number, SparkSession session, String columns, String forms, String root, String featureNames,
            long footerBytes, long vectorBytes) {
        shipment.to(session.sparkContext());
        install(session);
        Set features = new HashSet(Arrays.asList(featureNames.split(",")));
        FileSource source = new FileSource(
                planner, number, session.sparkContext(), root, features, footerBytes, vectorBytes, new FileLists());
        return frame(session, source, ((StructType) DataType.fromJson(columns)).asNullable(), new Forms(forms));
    }

    /**
     * Returns another frame of the relation of a plan, in the same session. Both share a planner and its file lists.
     */
    public Dataset again(SparkSession session, LogicalPlan plan) {
        install(session);
        HadoopFsRelation relation = (HadoopFsRelation) ((LogicalRelation) plan).relation();
        FileSource source = ((MdtFileIndex) relation.location()).source.again();
        return frame(session, source, relation.dataSchema(), ((MdtParquet) relation.fileFormat()).forms);
    }

    private static Dataset frame(SparkSession session, FileSource source, StructType schema, Forms forms) {
        return session.baseRelationToDataFrame(new HadoopFsRelation(new MdtFileIndex(source, null), new StructType(), schema,
                scala.Option.empty(), new MdtParquet(forms, source), Pinned.relation(Scala.none()), session));
    }

    /** Returns the unique name of a session. */
    public String name(SparkSession session) {
        return session.sessionUUID();
    }

    /**
     * Returns the frame of a relation whose rows are requested by each query (AskedRelation). columns: schema as JSON.
     */
    public Dataset asked(Function rows, SparkSession session, String columns, long bytes) {
        return session.baseRelationToDataFrame(new AskedRelation(session, rows, (StructType) DataType.fromJson(columns), bytes));
    }

    /** Returns the heads of row blocks (RowBlocks). */
    public JavaRDD heads(JavaRDD blocks) {
        shipment.to(blocks.context());
        return blocks.map(new RowBlocks(RowBlocks.HEAD));
    }

    /** Returns the row blocks that no bucket takes (RowBlocks). */
    public JavaRDD told(JavaRDD blocks) {
        shipment.to(blocks.context());
        return blocks.filter(new RowBlocks(RowBlocks.IS_TOLD));
    }

    /** Returns a frame with a new query over an analyzed plan. It has no files yet and will read the newest. */
    public Dataset anew(SparkSession session, LogicalPlan plan) {
        return Dataset.ofRows(session, plan);
    }

    /** Adds our rule to a list of a session's analyzer, unless it is there. */
    private static synchronized void analyze(SparkSession session, String kind) {
        Analyzer analyzer = session.sessionState().analyzer();
        Rule ours = Rules.of(kind, session);
        List rules = new ArrayList(Internals.rules(analyzer, kind));
        for (Object rule : rules) {
            if (rule.getClass() == ours.getClass()) {
                return;
            }
        }
        rules.add(ours);
        Internals.setRules(analyzer, kind, rules);
    }

    /** Adds our rules to derived sessions, and MeasureRule to the optimizers of all of them, only once. */
    private void extend(SparkSessionExtensions extensions) {
        if (extended.put(extensions, true) == null) {
            extensions.injectPreCBORule(new Rules(Rules.COSTS));
            extensions.injectHintResolutionRule(new Rules(Rules.EARLY));
            extensions.injectPostHocResolutionRule(new Rules(Rules.LATE));
        }
    }

    /** Adds our rules to the session's optimizer and our strategy to its planner, unless they are there. */
    private synchronized void install(SparkSession session) {
        ExperimentalMethods experimental = session.experimental();
        List rules = new ArrayList(Scala.list(experimental.extraOptimizations()));
        for (Object rule : rules) {
            if (rule instanceof PinRule) {
                return;
            }
        }
        rules.add(new PinRule());
        extend(session.extensions());
        rules.add(new TotalsRule());
        rules.add(new TopPruning());
        rules.add(new JoinPruning(session));
        experimental.extraOptimizations_$eq(Scala.seq(rules)); // assignment of a Scala variable in Java
        List strategies = new ArrayList(Scala.list(experimental.extraStrategies()));
        strategies.add(new TableScans());
        experimental.extraStrategies_$eq(Scala.seq(strategies));
    }
}
