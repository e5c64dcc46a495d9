// A relation that only has columns and is never read. Relations that are read are derived from it.
package mdt.spark;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

class BlankRelation extends BaseRelation {
    final SparkSession session;
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

    /** Rows are already in Spark's internal format. */
    public boolean needConversion() {
        return false;
    }
}
