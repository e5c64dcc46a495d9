// INSERT INTO and INSERT OVERWRITE of an mdt table, after Spark has converted the rows to the table's columns. Spark's
// own command would not return row counts. An INSERT into several tables remains Spark's command, without counts.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.InsertIntoDataSourceCommand;
import scala.collection.immutable.Seq;

final class InsertRows extends SqlCommand {
    private static final String[] COUNTS = {
        "num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows", "num_dropped_rows"};
    private final InsertIntoDataSourceCommand insert;

    InsertRows(InsertIntoDataSourceCommand insert) {
        super("INSERT", counts(COUNTS));
        this.insert = insert;
    }

    /** Shown by EXPLAIN below the node. */
    public Seq innerChildren() {
        return Scala.seq(new Object[] {insert.query()});
    }

    List carriedOut(SparkSession session) {
        Dataset rows = session.internalCreateDataFrame(
                Dataset.ofRows(session, insert.query()).queryExecution().toRdd(), insert.logicalRelation().schema(), false);
        MdtRelation table = (MdtRelation) insert.logicalRelation().relation();
        List counts = counted(
                Python.ask("insert", session, table.options(), insert.overwrite() ? "overwrite" : "into", rows));
        Caches.renew(session, MdtFileIndex.of(insert.logicalRelation()).source.root);
        return counts;
    }
}
