// Writes by table name that Spark would refuse for mdt tables.
//
// 1. INSERT … PARTITION (city = 'Oslo', day): the catalog sees an unpartitioned table (CommandRule.java) and would
// refuse it. Before names are resolved, the PARTITION clause is moved into the query:
//
//     INSERT INTO t PARTITION (city = 'Oslo', day) SELECT id, day FROM s
//     INSERT INTO t (id, day, city) SELECT id, day, cast('Oslo' AS string) city FROM s
//
// INSERT OVERWRITE replaces the partitions with the given values even if there are no rows, as Spark does for file
// tables. The option overwrite_partitions passes them to Python; with spark.sql.sources.partitionOverwriteMode=dynamic
// only if all partition columns have a value. With IF NOT EXISTS nothing is written if the partition has rows when the
// statement is analyzed.
//
// 2. df.writeTo("t").append(), overwritePartitions() and overwrite(lit(True)): Spark supports them only for catalog
// plug-ins. They become INSERT INTO t BY NAME, and INSERT OVERWRITE with the option overwrite_mode.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.UnresolvedInlineTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedStar;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoDir;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.CreateTable;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;

final class Inserts {
    static final String OVERWRITE_PARTITIONS = "overwrite_partitions";
    static final String OVERWRITE_MODE = "overwrite_mode";
    private static final String SETTING = "spark.sql.sources.partitionOverwriteMode";
    private final SparkSession session;

    Inserts(SparkSession session) {
        this.session = session;
    }

    /** Returns the replacement of a node of a plan, or null to keep it. */
    LogicalPlan of(Object node) {
        if (node instanceof V2WriteCommand) {
            return inserted((V2WriteCommand) node);
        }
        if (node instanceof InsertIntoDir && Tables.isOurs(((InsertIntoDir) node).provider())) {
            throw Python.refusal(session, "InsertIntoDir");
        }
        if (node instanceof CreateTable) {
            return (LogicalPlan) SavedTable.of(session, (CreateTable) node);
        }
        return node instanceof InsertIntoStatement ? rewritten((InsertIntoStatement) node) : null;
    }

    /** Returns the INSERT for a write of DataFrame.writeTo, or null for other tables. */
    private LogicalPlan inserted(V2WriteCommand write) {
        Object table = write.table();
        if (!(table instanceof UnresolvedRelation)
                || Tables.named(session, Scala.list(((UnresolvedRelation) table).multipartIdentifier())) == null) {
            return null;
        }
        boolean isDynamic = write instanceof OverwritePartitionsDynamic;
        boolean isOverwrite = isDynamic || write instanceof OverwriteByExpression;
        if (!isOverwrite && !(write instanceof AppendData)) {
            return null;
        }
        if (!isDynamic && isOverwrite && !((OverwriteByExpression) write).deleteExpr().equals(Literal$.MODULE$.TrueLiteral())) {
            throw new Unsupported("writeTo(…).overwrite by a condition is not supported for mdt tables; use overwritePartitions(), or "
                    + "df.write.format(\"mdt\").mode(\"overwrite\").option(\"overwrite_partitions\", …).save(path)");
        }
        UnresolvedRelation relation = (UnresolvedRelation) table;
        Map options = new HashMap(relation.options().asCaseSensitiveMap());
        options.putAll(Scala.map((scala.collection.immutable.Map) Scala.field((Product) write, "writeOptions")));
        if (isOverwrite) {
            options.put(OVERWRITE_MODE, isDynamic ? "dynamic" : "static");
        }
        return Internals.insert(with(relation, options), write.query(), isOverwrite, write.isByName());
    }

    private static UnresolvedRelation with(UnresolvedRelation relation, Map options) {
        return relation.copy(relation.multipartIdentifier(), new CaseInsensitiveStringMap(options), relation.isStreaming());
    }

    private LogicalPlan rewritten(InsertIntoStatement insert) {
        boolean isMore = Scala.isSet(insert, "replaceCriteriaOpt") || Scala.isSet(insert, "withSchemaEvolution");
        if (insert.partitionSpec().isEmpty() && !isMore || !(insert.table() instanceof UnresolvedRelation)) {
            return null;
        }
        UnresolvedRelation relation = (UnresolvedRelation) insert.table();
        CatalogTable table = Tables.named(session, Scala.list(relation.multipartIdentifier()));
        if (table == null) {
            return null;
        }
        if (isMore) {
            throw Python.refusal(session, Scala.isSet(insert, "withSchemaEvolution") ? "InsertEvolving" : "InsertReplacing");
        }
        PartitionValues values = new PartitionValues(session, table);
        Map spec = spec(insert, values, relation);
        if (spec == null) {
            return null; // Spark reports columns that are not partition columns
        }
        Map fixed = fixed(spec);
        Product rewritten = Scala.copied((Product) insert, "partitionSpec", Scala.none());
        rewritten = Scala.copied(rewritten, "query", with(insert.query(), fixed, values));
        if (insert.ifPartitionNotExists()) {
            rewritten = Scala.copied(rewritten, "ifPartitionNotExists", false);
            if (Python.texts(Python.ask("partitions", session, Tables.options(table), Json.text(values.texts(fixed)), null)).length > 0) {
                rewritten = Scala.copied(rewritten, "query", new Filter(Literal$.MODULE$.FalseLiteral(), ((InsertIntoStatement) rewritten).query()));
                return (LogicalPlan) Scala.copied(rewritten, "overwrite", false); // without rows: nothing is committed
            }
        }
        if (!insert.byName()) {
            rewritten = Scala.copied(rewritten, "userSpecifiedCols", Scala.seq(columns(insert, spec, fixed, values.columns.fieldNames())));
        }
        boolean isDynamic = fixed.size() < values.partitionBy.size() && "dynamic".equalsIgnoreCase(session.conf().get(SETTING));
        if (insert.overwrite() && !fixed.isEmpty() && !isDynamic) {
            Map options = new HashMap(relation.options().asCaseSensitiveMap());
            options.put(OVERWRITE_PARTITIONS, Json.text(values.texts(fixed)));
            rewritten = Scala.copied(rewritten, "table", with(relation, options));
        }
        return (LogicalPlan) rewritten;
    }

    /** Returns partition column -> value or an empty Option, or null if other columns are named. */
    private Map spec(InsertIntoStatement insert, PartitionValues values, UnresolvedRelation relation) {
        Map spec = values.named(Scala.map(insert.partitionSpec()));
        List partitionBy = values.partitionBy;
        if (!partitionBy.containsAll(spec.keySet())) {
            return null;
        }
        if (spec.size() < partitionBy.size()) {
            throw new Invalid("PARTITION names " + spec.keySet() + ", but " + relation.name()
                    + " is partitioned by " + partitionBy + ": name all of these, without a value if the rows contain it");
        }
        Map ordered = new LinkedHashMap();
        for (Object column : partitionBy) {
            ordered.put(column, spec.get(column));
        }
        return ordered;
    }

    /** Returns the given values, null for a null. */
    private static Map fixed(Map spec) {
        Map fixed = new LinkedHashMap();
        for (Object item : spec.entrySet()) {
            Map.Entry each = (Map.Entry) item;
            if (((Option) each.getValue()).isDefined()) {
                fixed.put(each.getKey(), ((Option) each.getValue()).get());
            }
        }
        return fixed;
    }

    /**
     * Returns the columns of the rows now: the previous ones, with partition columns last, then columns with a given
     * value.
     */
    private static List columns(InsertIntoStatement insert, Map spec, Map fixed, String[] names) {
        List columns = new ArrayList(Scala.list(insert.userSpecifiedCols()));
        if (columns.isEmpty()) {
            columns.addAll(Arrays.asList(names));
            columns.removeAll(spec.keySet());
            columns.addAll(spec.keySet());
            columns.removeAll(fixed.keySet());
        }
        columns.addAll(fixed.keySet());
        return columns;
    }

    /**
     * Returns a query with given values as additional columns. Spark resolves DEFAULT only in lists of values and of
     * columns.
     */
    private static LogicalPlan with(LogicalPlan query, Map fixed, PartitionValues partitionValues) {
        List values = new ArrayList();
        List namedValues = new ArrayList();
        for (Object item : fixed.entrySet()) {
            Map.Entry each = (Map.Entry) item;
            Expression value = partitionValues.value((String) each.getKey(), (String) each.getValue());
            values.add(value);
            namedValues.add(Edits.named(value, (String) each.getKey()));
        }
        if (query instanceof UnresolvedInlineTable) {
            UnresolvedInlineTable table = (UnresolvedInlineTable) query;
            List rows = new ArrayList();
            for (Object row : Scala.list(table.rows())) {
                rows.add(joined((Seq) row, values));
            }
            return new UnresolvedInlineTable(joined(table.names(), new ArrayList(fixed.keySet())), Scala.seq(rows));
        }
        if (query instanceof Project) {
            return new Project(joined(((Project) query).projectList(), namedValues), ((Project) query).child());
        }
        return new Project(joined(Scala.seq(new UnresolvedStar(Option.empty())), namedValues), query);
    }

    private static Seq joined(Seq first, List second) {
        List joined = new ArrayList(Scala.list(first));
        joined.addAll(second);
        return Scala.seq(joined);
    }
}
