// match(text, 'words' [, tokenizer]): the filter operator as regular expressions that the planner recognizes
// (patterns.py).
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.RLike;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.runtime.AbstractFunction1;

final class MatchFunction extends AbstractFunction1 {
    static final String NAME = "match";

    public Object apply(Object arguments) {
        List argumentList = Scala.list((scala.collection.immutable.Seq) arguments);
        if (argumentList.size() < 2 || argumentList.size() > 3) {
            throw new Invalid("match takes a text, words, and optionally the name of a tokenizer");
        }
        SparkSession session = Constants.session();
        List texts = Constants.texts(session, argumentList.subList(1, argumentList.size()));
        if (texts.contains(null)) {
            return new Literal(null, DataTypes.BooleanType);
        }
        String[] patterns = Python.texts(Python.ask("match", session, null, null, texts.toArray()));
        Expression condition = null;
        for (String pattern : patterns) {
            Expression match = new RLike((Expression) argumentList.get(0), new Literal(UTF8String.fromString(pattern), DataTypes.StringType));
            condition = condition == null ? match : new And(condition, match);
        }
        return condition;
    }
}
