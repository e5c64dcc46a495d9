// A relation whose rows Python computes whenever a query is planned: changes of a table. Spark passes the columns and
// the conditions that it will evaluate again. Python returns a frame, which may omit rows that do not satisfy the
// conditions.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.sources.CatalystScan;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

final class AskedRelation extends BlankRelation implements CatalystScan {
    private final Function rows;
    private final long bytes;

    /** rows: called with a session, conditions as JSON, and column names as JSON; bytes: estimated size of all rows. */
    AskedRelation(SparkSession session, Function rows, StructType columns, long bytes) {
        super(session, columns);
        this.rows = rows;
        this.bytes = bytes;
    }

    public long sizeInBytes() {
        return Math.max(1L, bytes);
    }

    public RDD buildScan(Seq required, Seq filters) {
        List names = new ArrayList();
        for (Object column : Scala.list(required)) {
            names.add(((Attribute) column).name());
        }
        Object[] request = {session, FileSource.json(filters), Json.text(names)};
        return ((Dataset) Calls.call(rows, request)).queryExecution().toRdd();
    }
}
