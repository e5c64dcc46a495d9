// Metrics of a plan: named numbers and the planning time, as Spark SQL metrics. The format in a reply is at the head of
// file_index.py.
package mdt.spark;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.collection.immutable.Map;

final class Figures {
    private static final int BYTES = 1; // units, as in file_index.py
    private static final int MILLISECONDS = 2;
    private final String[] names;
    private final long[] numbers;
    private final int[] units;

    /** milliseconds: duration of the call. */
    Figures(ByteBuffer bytes, long milliseconds) {
        int count = bytes.getInt();
        this.numbers = Arrays.copyOf(Reply.longs(bytes, count), count + 1);
        this.units = Arrays.copyOf(Reply.ints(bytes, count), count + 1);
        this.names = (String[]) Arrays.copyOf(Reply.texts(bytes, count), count + 1);
        names[count] = "time to plan the scan";
        numbers[count] = milliseconds;
        units[count] = MILLISECONDS;
    }

    /** Returns a metric for each figure, by name. */
    Map metrics(SparkContext context) {
        Map metrics = Scala.none();
        for (int i = 0; i < names.length; i++) {
            SQLMetric metric = units[i] == BYTES ? SQLMetrics.createSizeMetric(context, names[i], -1L)
                    : units[i] == MILLISECONDS ? SQLMetrics.createTimingMetric(context, names[i], -1L)
                    : SQLMetrics.createMetric(context, names[i]);
            metrics = Scala.with(metrics, names[i], metric);
        }
        return metrics;
    }

    /** Sets the metrics that have the name of a figure, and returns them. */
    List set(Map metrics) {
        List updated = new ArrayList();
        for (int i = 0; i < names.length; i++) {
            if (metrics.contains(names[i])) {
                SQLMetric metric = (SQLMetric) metrics.apply(names[i]);
                metric.set(numbers[i]);
                updated.add(metric);
            }
        }
        return updated;
    }
}
