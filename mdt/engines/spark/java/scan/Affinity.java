// The preferred executor of each file: always the same while it is alive, so that it has the footer in memory. Spark
// asks file systems that share machines with executors where a file's bytes are, and prefers to run tasks there. Here
// the answer is an executor chosen by rendezvous hashing (the largest hash of file and executor), so that a new or lost
// executor moves only its own files. Spark waits for a busy executor as long as spark.locality.wait.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.status.api.v1.ExecutorSummary;
import scala.jdk.javaapi.CollectionConverters;

final class Affinity {
    private static final String DRIVER = "driver";
    private final List executors = new ArrayList(); // in the format of Spark's TaskLocation

    Affinity(SparkContext context) {
        for (Object item : CollectionConverters.asJava((scala.collection.Seq) context.statusStore().executorList(true))) {
            ExecutorSummary each = (ExecutorSummary) item;
            if (!each.id().equals(DRIVER)) {
                executors.add("executor_" + each.hostPort().replaceFirst(":[0-9]*$", "") + "_" + each.id());
            }
        }
    }

    /** Returns these files, each with its executor if there are several. */
    List located(List files) {
        if (executors.size() < 2) {
            return files;
        }
        List located = new ArrayList(files.size());
        for (Object item : files) {
            FileStatusWithMetadata file = (FileStatusWithMetadata) item;
            FileStatus status = file.fileStatus();
            String[] hosts = {executor(status.getPath().toString().hashCode())};
            BlockLocation[] where = {new BlockLocation(hosts, hosts, 0L, status.getLen())};
            located.add(new FileStatusWithMetadata(new LocatedFileStatus(status, where), file.metadata()));
        }
        return located;
    }

    private String executor(int file) {
        String executor = null;
        int most = 0;
        for (Object item : executors) {
            String each = (String) item;
            int hash = mixed(file ^ mixed(each.hashCode()));
            if (executor == null || hash > most) {
                executor = each;
                most = hash;
            }
        }
        return executor;
    }

    /** The finalizer of Murmur3: each bit of the number changes each bit of the result. */
    private static int mixed(int number) {
        int hash = (number ^ (number >>> 16)) * 0x85ebca6b;
        hash = (hash ^ (hash >>> 13)) * 0xc2b2ae35;
        return hash ^ (hash >>> 16);
    }
}
