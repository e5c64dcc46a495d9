// Values of expressions without columns, evaluated by Spark during the analysis of a statement.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;

final class Constants {
    private Constants() {}

    /** Returns the session that is analyzing a statement. */
    static SparkSession session() {
        return (SparkSession) SparkSession$.MODULE$.getActiveSession().get();
    }

    /** Returns a row with the values of named expressions. */
    static Row of(SparkSession session, scala.collection.immutable.Seq expressions) {
        return (Row) Dataset.ofRows(session, new Project(expressions, new OneRowRelation())).collectAsList().get(0);
    }

    /** Returns the names of arguments in lower case, "" for positional arguments. */
    static List names(List arguments) {
        List names = new ArrayList();
        for (Object each : arguments) {
            names.add(each instanceof NamedArgumentExpression ? ((NamedArgumentExpression) each).key().toLowerCase(Locale.ROOT) : "");
        }
        return names;
    }

    /** Returns the values of arguments as text, null for null. Refuses columns. */
    static List values(SparkSession session, List arguments) {
        List values = new ArrayList();
        for (Object each : arguments) {
            values.add(each instanceof NamedArgumentExpression ? ((NamedArgumentExpression) each).value() : each);
        }
        return texts(session, values);
    }

    /** Returns the values of expressions as text, null for null. Refuses columns and named arguments. */
    static List texts(SparkSession session, List expressions) {
        List texts = new ArrayList();
        for (Object item : expressions) {
            Expression expression = (Expression) item;
            if (!expression.references().isEmpty() || expression instanceof NamedArgumentExpression) {
                throw new Invalid(expression.sql() + " is not a constant");
            }
            texts.add(Edits.named(new Cast(expression, DataTypes.StringType, Option.empty()), "text"));
        }
        return Scala.list(of(session, Scala.seq(texts)).toSeq());
    }
}
