// The mdt table that a SQL statement changes: a relation in its plan, below names and aliases.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.sources.BaseRelation;
import scala.collection.immutable.Map;

final class Target {
    final LogicalPlan plan;
    private final LogicalRelation node;
    private final MdtRelation table;

    private Target(LogicalPlan plan, LogicalRelation node) {
        this.plan = plan;
        this.node = node;
        this.table = (MdtRelation) node.relation();
    }

    /**
     * Returns the table that a plan names, or null if it is not ours. Refuses plans that select or rename rows of a
     * table.
     */
    static Target of(LogicalPlan plan) {
        LogicalPlan below = plan;
        while (below instanceof SubqueryAlias || below instanceof View) {
            below = (LogicalPlan) below.children().apply(0);
        }
        boolean isOurs = below instanceof LogicalRelation && ((LogicalRelation) below).relation() instanceof MdtRelation;
        if (!isOurs && !new IndexSearch(below).roots.isEmpty()) {
            throw new Unsupported("DELETE, UPDATE and MERGE are not supported for a view of a query or DataFrame; name the table");
        }
        return isOurs ? new Target(plan, (LogicalRelation) below) : null;
    }

    SparkSession session() {
        return (SparkSession) table.sparkSession();
    }

    Map options() {
        return table.options();
    }

    /** Returns the table's columns, which expressions of the statement refer to by id. */
    List columns() {
        return Scala.list(node.output());
    }

    Attribute column(String name) {
        for (Object column : columns()) {
            if (((Attribute) column).name().equals(name)) {
                return (Attribute) column;
            }
        }
        throw new Invalid("the catalog has no column " + name
                + " of the table; run REFRESH TABLE, or create the catalog entry again");
    }

    /** Returns an expression with the table's spelling of its column names. */
    Expression named(Expression expression) {
        final List columns = columns();
        return (Expression) expression.transform(new Replacement() {
            Object of(Object each) {
                for (int i = 0; each instanceof Attribute && i < columns.size(); i++) {
                    Attribute column = (Attribute) columns.get(i);
                    if (column.exprId().equals(((Attribute) each).exprId()) && !column.name().equals(((Attribute) each).name())) {
                        return column;
                    }
                }
                return null;
            }
        });
    }

    /** Returns a plan in which the table, by whatever name it is read, has its rows after the commit seq. */
    LogicalPlan at(long seq, LogicalPlan reading) {
        return at(session(), table.options(), root(), seq, reading);
    }

    /** As above, for the table with a root and options. */
    static LogicalPlan at(SparkSession session, Map options, final String root, long seq, LogicalPlan reading) {
        final BaseRelation rows = MdtSource.relation(session, Scala.with(options, "as_of", String.valueOf(seq)), null);
        return (LogicalPlan) reading.transformDownWithSubqueries(new Replacement() {
            Object of(Object each) {
                return isRead(each, root) ? Scala.copied(current((LogicalRelation) each, rows), "relation", rows) : null;
            }
        });
    }

    /** Returns a relation of the table, or refuses one that a session has read before its columns were altered. */
    private static LogicalRelation current(LogicalRelation relation, BaseRelation rows) {
        List read = Scala.list(relation.output());
        List newNames = new ArrayList(Arrays.asList(rows.schema().fieldNames()));
        for (Object item : read) {
            Attribute column = (Attribute) item;
            if (!newNames.remove(column.name())
                    || !rows.schema().apply(column.name()).dataType().catalogString().equals(column.dataType().catalogString())) {
                throw altered(column.name());
            }
        }
        if (!newNames.isEmpty()) {
            throw altered((String) newNames.get(0));
        }
        return relation;
    }

    private static RuntimeException altered(String column) {
        return new Invalid("the table's columns were altered after this session has read it: the column " + column
                + " is not as before; run REFRESH TABLE, or create the view or DataFrame again");
    }

    /** Returns the number of relations in a plan and its subqueries that read the newest rows of this table. */
    int reads(LogicalPlan plan) {
        return reads(plan, root());
    }

    /** As above, for the table with a root. */
    static int reads(LogicalPlan plan, String root) {
        int count = 0;
        for (Object node : Nodes.withSubqueries(plan)) {
            count += isRead(node, root) ? 1 : 0;
        }
        return count;
    }

    private static boolean isRead(Object each, String root) {
        MdtFileIndex index = MdtFileIndex.of(each);
        return index != null && index.does(MdtFileIndex.NEWEST) && index.source.root.equals(root);
    }

    private String root() {
        return MdtFileIndex.of(node).source.root;
    }

    /** Returns a plan with the columns that cannot be read, for Spark's optimizer. */
    LogicalPlan blank() {
        final BaseRelation blank = new BlankRelation(table.sparkSession(), table.dataSchema());
        return (LogicalPlan) plan.transformDown(new Replacement() {
            Object of(Object each) {
                return each == node ? Scala.copied(node, "relation", blank) : null;
            }
        });
    }

    /** Refreshes Spark's cache of the table. */
    void changed() {
        Caches.renew(session(), root());
    }
}
