// The source of a MERGE if it is small: its rows are computed once and determine the rows of the table that they can
// match, so that indexes find these and the table is not read completely.
//
// With more than ROWS_MAX rows the attempt is wasted: 0.15 s of CPU in a MERGE of 2.5 s with 100,000 source rows in
// files, and 0.35 s in a MERGE of 1.0 s whose source is an aggregate of 1.5 million rows (24 MB), which is computed
// completely for its first row. BYTES_MAX limits this. The computed rows are not reused as the source: such a plan
// would hide the source's filters, columns and joins, by which Catalyst chooses join strategies and prunes the table.
package mdt.spark;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import scala.Option;

final class FewRows {
    private static final int ROWS_MAX = 10000;
    private static final BigInteger BYTES_MAX = BigInteger.valueOf(64L << 20); // by Spark's estimate; more may take long to compute twice

    private FewRows() {}

    /** Returns the current rows of a plan if they are few and can be computed, else null. */
    static LogicalPlan of(SparkSession session, LogicalPlan plan) {
        try {
            return made(session, plan);
        } catch (Exception failure) { // perhaps in rows that the statement does not need
            return null;
        }
    }

    private static LogicalPlan made(SparkSession session, LogicalPlan plan) {
        Dataset rows = Dataset.ofRows(session, plan);
        if (rows.queryExecution().optimizedPlan().stats().sizeInBytes().bigInteger().compareTo(BYTES_MAX) > 0) {
            return null;
        }
        InternalRow[] taken = taken(rows.limit(ROWS_MAX + 1));
        if (taken.length > ROWS_MAX) {
            return null;
        }
        return new LocalRelation(plan.output(), Scala.seq(taken), false, Option.empty());
    }

    private static InternalRow[] taken(Dataset rows) {
        return (InternalRow[]) rows.queryExecution().executedPlan().executeTake(ROWS_MAX + 1);
    }

    /**
     * Returns the condition that a column has a value of an expression over few rows. Null if values are not compared
     * by bytes, or if they cannot be computed for all rows, because the statement may exclude the failing rows.
     */
    static Expression among(SparkSession session, Attribute column, Expression value, LogicalPlan fewRows) {
        DataType type = value.dataType();
        if (!type.equals(column.dataType()) || type instanceof StringType && !type.equals(DataTypes.StringType)) {
            return null;
        }
        InternalRow[] rows;
        try {
            rows = taken(Dataset.ofRows(session, new Project(Scala.seq(Edits.named(value, "value")), fewRows)));
        } catch (Exception failure) {
            return null;
        }
        Set values = new LinkedHashSet();
        for (InternalRow row : rows) {
            if (!row.isNullAt(0)) { // null equals nothing
                values.add(new Literal(row.copy().get(0, type), type));
            }
        }
        return new In(column, Scala.seq(new ArrayList(values)));
    }
}
