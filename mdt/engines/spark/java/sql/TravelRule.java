// SELECT … FROM t VERSION AS OF …, and TIMESTAMP AS OF: for a table of ours its state takes the place of the name, with the columns that it
// had, before Spark looks for the table and refuses. A version is the number of a commit, a tag, or what else the option as_of takes.
package mdt.spark;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnixMicros;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

public class TravelRule extends Rule {
    private static final String OPTION = "as_of";
    private final SparkSession session;

    TravelRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        return ((LogicalPlan) plan).transformDownWithSubqueries(new Replacement() {
            Object of(Object node) {
                return node instanceof RelationTimeTravel ? travelled((RelationTimeTravel) node) : null;
            }
        });
    }

    private LogicalPlan travelled(RelationTimeTravel travel) {
        if (!(travel.relation() instanceof UnresolvedRelation)) {
            return null;
        }
        UnresolvedRelation named = (UnresolvedRelation) travel.relation();
        CatalogTable table = Tables.named(session, Scala.list(named.multipartIdentifier()));
        if (table == null) {
            return null;
        }
        Map options = new HashMap(CollectionConverters.asJava(Tables.options(table)));
        options.putAll(named.options().asCaseSensitiveMap());
        String point = (String) (travel.version().isDefined() ? travel.version().get() : moment((Expression) travel.timestamp().get()));
        if (options.put(OPTION, point) != null) {
            throw new Invalid("the state is named twice: leave out the option " + OPTION);
        }
        LogicalPlan rows = session.baseRelationToDataFrame(MdtSource.relation(session,
                scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options)), null)).queryExecution().analyzed();
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
}
