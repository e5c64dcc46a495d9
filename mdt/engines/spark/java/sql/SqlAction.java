// What SqlCommand carries out when Spark runs it.
package mdt.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructType;

public abstract class SqlAction {
    /** Returns what it is called in plans. */
    public abstract String kind();

    /** Returns the columns of its answer. */
    abstract StructType answer();

    /** Returns plans that EXPLAIN shows below it. */
    Object[] plans() {
        return new Object[0];
    }

    /** Carries it out, once, and returns the rows of its answer: arrays of values. */
    abstract Object[][] run(SparkSession session);
}
