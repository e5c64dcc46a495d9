// INSERT INTO and INSERT OVERWRITE of an mdt table, after Spark has converted the rows to the table's columns. Spark's
// own command would not return row counts. An INSERT into several tables remains Spark's command, without counts.
//
// Python requests the rows: those of a query that reads the table itself at one commit, and again if another writer
// changes what they replace.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.InsertIntoDataSourceCommand;
import scala.collection.immutable.Seq;

public final class InsertRows extends SqlCommand {
    private static final String[] COUNTS = {
        "num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows", "num_dropped_rows"};
    private final InsertIntoDataSourceCommand insert;
    private final Target target;

    InsertRows(InsertIntoDataSourceCommand insert) {
        super("INSERT", counts(COUNTS));
        this.insert = insert;
        this.target = Target.of(insert.logicalRelation());
    }

    /** Shown by EXPLAIN below the node. */
    public Seq innerChildren() {
        return Scala.seq(new Object[] {insert.query()});
    }

    List carriedOut(SparkSession session) {
        String how = insert.overwrite() ? "overwrite" : "into";
        List counts = counted(Python.ask("insert", session, target.options(), how, this));
        target.changed();
        return counts;
    }

    /** Returns true if the query reads the table that it changes. */
    public boolean readsTable() {
        return target.reads(insert.query()) > 0;
    }

    /** Returns the rows of the query. seq: the commit at which it reads the table. */
    public Dataset rows(long seq) {
        LogicalPlan query = readsTable() ? target.at(seq, insert.query()) : insert.query();
        return target.session().internalCreateDataFrame(
                Dataset.ofRows(target.session(), query).queryExecution().toRdd(), insert.logicalRelation().schema(), false);
    }
}
