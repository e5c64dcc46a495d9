// Columns without rows: stands for a table while Spark's optimizer simplifies what a statement says of its rows.
package mdt.spark;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

final class BlankRelation extends BaseRelation {
    private final SparkSession session;
    private final StructType columns;

    BlankRelation(SparkSession session, StructType columns) {
        this.session = session;
        this.columns = columns;
    }

    public SQLContext sqlContext() {
        return session.sqlContext();
    }

    public StructType schema() {
        return columns;
    }
}
