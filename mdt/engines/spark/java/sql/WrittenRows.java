// The rows of an INSERT or of df.write, as a query. Python requests them: those of a query that reads the table itself
// at one commit, and again if another writer changes what they replace.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;

public final class WrittenRows {
    private final SparkSession session;
    private final Map options;
    private final LogicalPlan query;
    private final StructType columns;

    /** options: of the table; columns: of the rows, or null for those of the query. */
    WrittenRows(SparkSession session, Map options, LogicalPlan query, StructType columns) {
        this.session = session;
        this.options = options;
        this.query = query;
        this.columns = columns;
    }

    /** Returns true if the query reads the newest rows of the table with this root. */
    public boolean read(String root) {
        return Target.reads(query, root) > 0;
    }

    /** Returns the rows of a query that does not read the table. */
    public Dataset rows() {
        return rows(query);
    }

    /** Returns the rows of the query, which reads the table with this root at the commit seq. */
    public Dataset rows(String root, long seq) {
        return rows(Target.at(session, options, root, seq, query));
    }

    private Dataset rows(LogicalPlan plan) {
        Dataset rows = Dataset.ofRows(session, plan);
        return columns == null ? rows : session.internalCreateDataFrame(rows.queryExecution().toRdd(), columns, false);
    }
}
