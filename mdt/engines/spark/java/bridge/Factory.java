// What Python calls by py4j: once for every frame. Each call of the JVM from Python costs some 0.1 ms and more, so one call
// does all there is to do, and what it takes is text or numbers.
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
    private final Map extended = Collections.synchronizedMap(new WeakHashMap()); // extensions of sessions, which newer ones share

    /** To be called first. jar: the path of the one with the classes of this package. */
    public void prepare(String jar) throws Exception {
        Internals.probe();
        shipment = new Shipment(new File(jar));
    }

    /** Lets format("mdt") be known in a session and reach Python. answers: what Python.java asks. Returns whether it is known. */
    public boolean enable(SparkSession session, Function answers) {
        Python.answeredBy(answers);
        shipment.to(session.sparkContext());
        install(session);
        analyze(session, Rules.EARLY);
        analyze(session, Rules.LATE);
        Functions.known(session);
        try {
            return DataSource.lookupDataSource(MdtSource.NAME, session.sessionState().conf()) == MdtSource.class;
        } catch (Exception unknown) { // Scala's methods do not declare what they throw
            return false;
        }
    }

    /** Returns the settings of a session whose names begin with a prefix, as JSON. */
    public String settings(SparkSession session, String prefix) {
        Map found = new HashMap(Scala.map(session.conf().getAll()));
        for (Iterator i = found.keySet().iterator(); i.hasNext(); ) {
            if (!((String) i.next()).startsWith(prefix)) {
                i.remove();
            }
        }
        return Json.text(found);
    }

    /**
     * Returns the frame of one relation. number: by which Python knows its planner; columns: schema as JSON; forms: of older versions of the columns (Forms.java); does: what is done
     * for it, names of MdtFileIndex with commas between; footerBytes, vectorBytes: of footers and of deletion vectors that an
     * executor keeps.
     */
    public Dataset relation(Function planner, long number, SparkSession session, String columns, String forms, String root, String does,
            long footerBytes, long vectorBytes) {
        shipment.to(session.sparkContext());
        install(session);
        Set all = new HashSet(Arrays.asList(does.split(",")));
        FileSource source = new FileSource(
                planner, number, session.sparkContext(), root, all, footerBytes, vectorBytes, new FileLists());
        return frame(session, source, ((StructType) DataType.fromJson(columns)).asNullable(), new Forms(forms));
    }

    /** Returns another frame of a relation, whose plan is given, in the same session: both ask one planner, and share what it has sent. */
    public Dataset again(SparkSession session, LogicalPlan plan) {
        install(session);
        HadoopFsRelation known = (HadoopFsRelation) ((LogicalRelation) plan).relation();
        FileSource source = ((MdtFileIndex) known.location()).source.again();
        return frame(session, source, known.dataSchema(), ((MdtParquet) known.fileFormat()).forms);
    }

    private static Dataset frame(SparkSession session, FileSource source, StructType schema, Forms forms) {
        return session.baseRelationToDataFrame(new HadoopFsRelation(new MdtFileIndex(source, null), new StructType(), schema,
                scala.Option.empty(), new MdtParquet(forms, source), Pinned.relation(Scala.none()), session));
    }

    /** Returns what tells a session from all others. */
    public String name(SparkSession session) {
        return session.sessionUUID();
    }

    /** Returns the frame of a relation whose rows are asked for by each query: see AskedRelation. columns: schema as JSON. */
    public Dataset asked(Function rows, SparkSession session, String columns, long bytes) {
        return session.baseRelationToDataFrame(new AskedRelation(session, rows, (StructType) DataType.fromJson(columns), bytes));
    }

    /** Returns the heads of blocks of rows: see RowBlocks. */
    public JavaRDD heads(JavaRDD blocks) {
        shipment.to(blocks.context());
        return blocks.map(new RowBlocks(RowBlocks.HEAD));
    }

    /** Returns those blocks of rows that no bucket takes: see RowBlocks. */
    public JavaRDD told(JavaRDD blocks) {
        shipment.to(blocks.context());
        return blocks.filter(new RowBlocks(RowBlocks.IS_TOLD));
    }

    /** Returns a frame with a query of its own over an analysed plan: it has no files yet, and will be given the newest. */
    public Dataset anew(SparkSession session, LogicalPlan plan) {
        return Dataset.ofRows(session, plan);
    }

    /** Adds our rule to one kind of those of a session's analyzer, unless it is there. */
    private static synchronized void analyze(SparkSession session, String kind) {
        Analyzer analyzer = session.sessionState().analyzer();
        Rule ours = Rules.of(kind, session);
        List rules = new ArrayList(Internals.rules(analyzer, kind));
        for (int i = 0; i < rules.size(); i++) {
            if (rules.get(i).getClass() == ours.getClass()) {
                return;
            }
        }
        rules.add(ours);
        Internals.setRules(analyzer, kind, rules);
    }

    /** Adds our rules to what sessions that are made of one get, and MeasureRule to the optimizers of all of them, but once. */
    private void extend(SparkSessionExtensions extensions) {
        if (extended.put(extensions, Boolean.TRUE) == null) {
            extensions.injectPreCBORule(new Rules(Rules.COSTS));
            extensions.injectHintResolutionRule(new Rules(Rules.EARLY));
            extensions.injectPostHocResolutionRule(new Rules(Rules.LATE));
        }
    }

    /** Adds our rules to the session's optimizer and our strategy to its planner, unless they are there. */
    private synchronized void install(SparkSession session) {
        ExperimentalMethods own = session.experimental();
        List rules = new ArrayList(Scala.list(own.extraOptimizations()));
        for (int i = 0; i < rules.size(); i++) {
            if (rules.get(i) instanceof PinRule) {
                return;
            }
        }
        rules.add(new PinRule());
        extend(session.extensions());
        rules.add(new TotalsRule());
        rules.add(new TopPruning());
        rules.add(new JoinPruning(session));
        own.extraOptimizations_$eq(Scala.seq(rules)); // how Java spells the assignment of a Scala variable
        List strategies = new ArrayList(Scala.list(own.extraStrategies()));
        strategies.add(new TableScans());
        own.extraStrategies_$eq(Scala.seq(strategies));
    }
}
