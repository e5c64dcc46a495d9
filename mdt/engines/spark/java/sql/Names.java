// Names of mdt tables in queries and INSERT, before Spark resolves them:
//
// 1. SELECT … FROM t VERSION AS OF … and TIMESTAMP AS OF, which Spark would refuse: the name is replaced by that state
// of the table, with its columns. A version is the number of a commit, a tag, or any other value of the option as_of.
// 2. Tables whose catalog entry has options of the machine (docs/options.md): directories, memory and threads are
// chosen by the user who runs the query. The name is replaced by the table without these options. CREATE TABLE refuses
// them (CommandRule.java), but other programs may write catalog entries.
package mdt.spark;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.UnresolvedCatalogRelation;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnixMicros;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.Product;

final class Names {
    private static final String OPTION = "as_of";
    private final SparkSession session;

    Names(SparkSession session) {
        this.session = session;
    }

    /** Returns the replacement of a node of a plan, or null to keep it. */
    Object of(Object node) {
        if (node instanceof RelationTimeTravel) {
            RelationTimeTravel travel = (RelationTimeTravel) node;
            return travel.relation() instanceof UnresolvedRelation ? travelled(travel, (UnresolvedRelation) travel.relation()) : null;
        }
        if (node instanceof InsertIntoStatement) {
            Object table = of(((InsertIntoStatement) node).table());
            return table == null ? null : Scala.copied((Product) node, "table", table);
        }
        return node instanceof UnresolvedRelation ? own((UnresolvedRelation) node) : null;
    }

    private LogicalPlan travelled(RelationTimeTravel travel, UnresolvedRelation relation) {
        CatalogTable table = Tables.named(session, Scala.list(relation.multipartIdentifier()));
        if (table == null) {
            return null;
        }
        Map options = new HashMap(Scala.map(Tables.options(table)));
        options.putAll(relation.options().asCaseSensitiveMap());
        String point = (String) (travel.version().isDefined() ? travel.version().get() : moment((Expression) travel.timestamp().get()));
        if (options.put(OPTION, point) != null) {
            throw new Invalid("the state is given twice: remove the option " + OPTION);
        }
        LogicalPlan rows = session.baseRelationToDataFrame(MdtSource.relation(session, Scala.map(options), null)).queryExecution().analyzed();
        return new SubqueryAlias(Tables.alias(table), rows);
    }

    /** Returns the value of an expression without columns as a time for as_of. */
    private String moment(Expression time) {
        Expression micros = new UnixMicros(new Cast(time, DataTypes.TimestampType, Option.empty()));
        Object value = Constants.of(session, Scala.seq(Edits.named(micros, "moment"))).get(0);
        if (value == null) {
            throw new Invalid("TIMESTAMP AS OF must not be null");
        }
        return Instant.EPOCH.plus((Long) value, ChronoUnit.MICROS).toString();
    }

    private LogicalPlan own(UnresolvedRelation relation) {
        CatalogTable entry = Tables.entry(session, Scala.list(relation.multipartIdentifier()));
        CatalogTable ownEntry = Tables.own(session, entry);
        return ownEntry == entry ? null : new SubqueryAlias(Tables.alias(ownEntry),
                new UnresolvedCatalogRelation(ownEntry, relation.clearWritePrivileges().options(), relation.isStreaming()));
    }
}
