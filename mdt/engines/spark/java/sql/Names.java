// Names of tables of ours in queries, and in INSERT, before Spark looks for them.
//
// 1. SELECT … FROM t VERSION AS OF …, and TIMESTAMP AS OF, which Spark would refuse: the state of the table takes the place of the name, with
//    the columns that it had. A version is the number of a commit, a tag, or what else the option as_of takes.
// 2. Tables whose entry of the catalog has options of the machine (docs/options.md): directories, memory and threads are for whoever runs the
//    query to choose. Such a table takes the place of its name without them, before Spark gives a reader all that the entry says.
//    CREATE TABLE refuses them (CommandRule.java), but who else writes entries is not known.
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

    /** Returns what takes the place of a node of a plan, null if it stays. */
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

    private LogicalPlan travelled(RelationTimeTravel travel, UnresolvedRelation named) {
        CatalogTable table = Tables.named(session, Scala.list(named.multipartIdentifier()));
        if (table == null) {
            return null;
        }
        Map options = new HashMap(Scala.map(Tables.options(table)));
        options.putAll(named.options().asCaseSensitiveMap());
        String point = (String) (travel.version().isDefined() ? travel.version().get() : moment((Expression) travel.timestamp().get()));
        if (options.put(OPTION, point) != null) {
            throw new Invalid("the state is named twice: leave out the option " + OPTION);
        }
        LogicalPlan rows = session.baseRelationToDataFrame(MdtSource.relation(session, Scala.map(options), null)).queryExecution().analyzed();
        return new SubqueryAlias(Tables.alias(table), rows);
    }

    /** Returns the value of an expression without columns as a moment, in the words of as_of. */
    private String moment(Expression time) {
        Expression micros = new UnixMicros(new Cast(time, DataTypes.TimestampType, Option.empty()));
        Object[] one = {Edits.named(micros, "moment")};
        Object found = Constants.of(session, Scala.seq(one)).get(0);
        if (found == null) {
            throw new Invalid("TIMESTAMP AS OF null names no state");
        }
        return Instant.EPOCH.plus(((Long) found).longValue(), ChronoUnit.MICROS).toString();
    }

    private LogicalPlan own(UnresolvedRelation named) {
        CatalogTable entry = Tables.entry(session, Scala.list(named.multipartIdentifier()));
        CatalogTable own = entry == null ? null : Tables.own(session, entry);
        return own == entry ? null : new SubqueryAlias(Tables.alias(own),
                new UnresolvedCatalogRelation(own, named.clearWritePrivileges().options(), named.isStreaming()));
    }
}
