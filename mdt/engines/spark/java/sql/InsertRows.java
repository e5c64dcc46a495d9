// INSERT INTO and INSERT OVERWRITE of a table of ours, when Spark has given the rows the table's columns: its own command would not say what became
// of the rows. An INSERT of several tables at a time stays Spark's, and does not say it.
package mdt.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.datasources.InsertIntoDataSourceCommand;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

final class InsertRows extends SqlAction {
    private static final String[] COUNTS = {
        "num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows", "num_dropped_rows"};
    private final InsertIntoDataSourceCommand insert;
    private final MdtRelation table;

    private InsertRows(InsertIntoDataSourceCommand insert, MdtRelation table) {
        this.insert = insert;
        this.table = table;
    }

    /** Returns the action that a command is, null if it writes into a table of somebody else's. */
    static InsertRows of(InsertIntoDataSourceCommand insert) {
        Object relation = insert.logicalRelation().relation();
        return relation instanceof MdtRelation ? new InsertRows(insert, (MdtRelation) relation) : null;
    }

    public String kind() {
        return "INSERT";
    }

    StructType answer() {
        StructType found = new StructType();
        for (int i = 0; i < COUNTS.length; i++) {
            found = found.add(COUNTS[i], DataTypes.LongType, false);
        }
        return found;
    }

    Object[] plans() {
        return new Object[] {insert.query()};
    }

    Object[][] run(SparkSession asked) {
        org.apache.spark.sql.classic.SparkSession session = (org.apache.spark.sql.classic.SparkSession) asked;
        Dataset rows = session.internalCreateDataFrame(
                Dataset.ofRows(session, insert.query()).queryExecution().toRdd(), insert.logicalRelation().schema(), false);
        Object[] counts = Python.insert(session, table.options(), insert.overwrite() ? "overwrite" : "into", rows);
        Caches.renew(session, MdtFileIndex.of(insert.logicalRelation()).source.root);
        return new Object[][] {counts};
    }
}
