// Values of expressions without columns, which Spark evaluates while it analyzes a statement.
package mdt.spark;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;

final class Constants {
    private Constants() {}

    /** Returns a row of the values of these named expressions. */
    static Row of(SparkSession session, scala.collection.immutable.Seq expressions) {
        return (Row) Dataset.ofRows(session, new Project(expressions, new OneRowRelation())).collectAsList().get(0);
    }
}
