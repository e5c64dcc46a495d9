// A relation that has columns, and no more: nobody reads it. Those that are read are derived from it.
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

    /** The rows are those of Spark's own execution, which it takes as they are. */
    public boolean needConversion() {
        return false;
    }
}
