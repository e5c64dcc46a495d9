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
        List given = Scala.list((scala.collection.immutable.Seq) arguments);
        if (given.size() < 2 || given.size() > 3) {
            throw new Invalid("match takes a text, words, and optionally the name of a tokenizer");
        }
        SparkSession session = Constants.session();
        List said = Constants.texts(session, given.subList(1, given.size()));
        if (said.contains(null)) {
            return new Literal(null, DataTypes.BooleanType);
        }
        String[] patterns = Python.texts(Python.ask("match", session, null, null, said.toArray()));
        Expression all = null;
        for (int i = 0; i < patterns.length; i++) {
            Expression one = new RLike((Expression) given.get(0), new Literal(UTF8String.fromString(patterns[i]), DataTypes.StringType));
            all = all == null ? one : new And(all, one);
        }
        return all;
    }
}
