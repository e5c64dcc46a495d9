// INSERT INTO and INSERT OVERWRITE of an mdt table, after Spark has converted the rows to the table's columns. Spark's
// own command would not return row counts. An INSERT into several tables returns none.
package mdt.spark;

import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.InsertIntoDataSourceCommand;
import scala.collection.immutable.Seq;

final class InsertRows extends SqlCommand {
    static final String[] COUNTS = {
        "num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows", "num_dropped_rows"};
    private final InsertIntoDataSourceCommand insert;
    private final Target target;

    /** counts: names of the columns of the result, COUNTS or none. */
    InsertRows(InsertIntoDataSourceCommand insert, String[] counts) {
        super("INSERT", counts(counts));
        this.insert = insert;
        this.target = Target.of(insert.logicalRelation());
    }

    /** Shown by EXPLAIN below the node. */
    public Seq innerChildren() {
        return Scala.seq(insert.query());
    }

    List carriedOut(SparkSession session) {
        String how = insert.overwrite() ? "overwrite" : "into";
        WrittenRows rows = new WrittenRows(session, target.options(), insert.query(), insert.logicalRelation().schema());
        List counts = counted(Python.ask("insert", session, target.options(), how, rows));
        target.changed();
        return output().isEmpty() ? Collections.EMPTY_LIST : counts;
    }
}
