// What Python gave as Arrow, of which Spark knows nothing: createDataFrame makes a plan of small data, whose rows Spark has made, and of more an RDD,
// each partition of which has one record batch, as bytes in the driver. How large it is, and these bytes, may be had without any row being made.
package mdt.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.Dependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.Partition;
import org.apache.spark.rdd.MapPartitionsRDD;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import scala.collection.Iterator;

final class GivenBytes {
    private static final String LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes";

    private GivenBytes() {}

    /** Returns the bytes of Arrow that a frame is made of, or of which it is a part; -1 where it is made of anything else. */
    static long of(Dataset rows) {
        LogicalPlan plan = rows.queryExecution().analyzed();
        while (plan instanceof Project || plan instanceof Filter || plan instanceof SubqueryAlias) {
            plan = (LogicalPlan) ((UnaryNode) plan).child();
        }
        List batches = batches(plan);
        if (batches == null) {
            return -1;
        }
        long bytes = 0;
        for (int i = 0; i < batches.size(); i++) {
            bytes += ((byte[]) batches.get(i)).length;
        }
        return bytes;
    }

    /**
     * Writes the record batches that a frame is nothing but columns of into a file, one behind the other. Returns {"schema": of the batches,
     * "columns": [the place in it of each column of the frame, ...], "bytes": of the file} as JSON; null, and writes nothing, where a plan does anything else, and
     * where a session keeps its data off disks, or wants texts in another form than the batches were made in.
     */
    static String write(Dataset rows, String file) throws IOException, JsonProcessingException {
        if (rows.sparkSession().sparkContext().conf().getBoolean("spark.io.encryption.enabled", false)
                || !"false".equals(rows.sparkSession().sessionState().conf().getConfString(LARGE_TYPES, "false"))) {
            return null;
        }
        LogicalPlan plan = rows.queryExecution().optimizedPlan();
        List columns = Scala.list(plan.output());
        if (plan instanceof Project) {
            columns = Scala.list(((Project) plan).projectList());
            plan = ((Project) plan).child();
        }
        List batches = batches(plan);
        List places = batches == null ? null : PlainFiles.places(columns, Scala.list(plan.output()));
        if (places == null) {
            return null;
        }
        long bytes = 0;
        FileOutputStream out = new FileOutputStream(file);
        try {
            for (int i = 0; i < batches.size(); i++) {
                out.write((byte[]) batches.get(i));
                bytes += ((byte[]) batches.get(i)).length;
            }
        } finally {
            out.close();
        }
        Map told = new HashMap();
        told.put("schema", plan.schema().json());
        told.put("columns", places);
        told.put("bytes", Long.valueOf(bytes));
        return new ObjectMapper().writeValueAsString(told);
    }

    /** Returns the record batches that a plan makes rows of, in their order; null of any other plan. */
    private static List batches(LogicalPlan plan) {
        if (!(plan instanceof LogicalRDD) || plan.isStreaming()) {
            return null;
        }
        RDD rdd = ((LogicalRDD) plan).rdd();
        if (!"arrow".equals(rdd.name()) || rdd.getClass() != MapPartitionsRDD.class) { // as Spark calls it; other functions may make much of a few bytes
            return null;
        }
        List before = Scala.list(rdd.dependencies());
        if (before.size() != 1 || !(before.get(0) instanceof OneToOneDependency)) {
            return null;
        }
        Partition[] parts = ((Dependency) before.get(0)).rdd().partitions();
        List found = new ArrayList();
        for (int i = 0; i < parts.length; i++) {
            if (!(parts[i] instanceof ParallelCollectionPartition)) {
                return null;
            }
            for (Iterator batches = ((ParallelCollectionPartition) parts[i]).iterator(); batches.hasNext(); ) {
                Object batch = batches.next();
                if (!(batch instanceof byte[])) {
                    return null;
                }
                found.add(batch);
            }
        }
        return found;
    }
}
