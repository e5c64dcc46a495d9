// Metrics of a plan: named numbers and the planning time, as Spark SQL metrics. The format in a reply is at the head of
// file_index.py.
package mdt.spark;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
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
    Figures(ByteBuffer from, long milliseconds) {
        int n = from.getInt();
        this.numbers = new long[n + 1];
        System.arraycopy(Reply.longs(from, n), 0, numbers, 0, n);
        this.units = new int[n + 1];
        System.arraycopy(Reply.ints(from, n), 0, units, 0, n);
        int[] ends = Reply.ints(from, n);
        this.names = new String[n + 1];
        for (int i = 0; i < n; i++) {
            byte[] name = new byte[ends[i] - (i == 0 ? 0 : ends[i - 1])];
            from.get(name);
            names[i] = new String(name, StandardCharsets.UTF_8);
        }
        names[n] = "time to plan the scan";
        numbers[n] = milliseconds;
        units[n] = MILLISECONDS;
    }

    /** Returns a metric for each figure, by name. */
    Map metrics(SparkContext context) {
        Map found = Scala.none();
        for (int i = 0; i < names.length; i++) {
            SQLMetric metric = units[i] == BYTES ? SQLMetrics.createSizeMetric(context, names[i], -1L)
                    : units[i] == MILLISECONDS ? SQLMetrics.createTimingMetric(context, names[i], -1L)
                    : SQLMetrics.createMetric(context, names[i]);
            found = Scala.with(found, names[i], metric);
        }
        return found;
    }

    /** Sets the metrics that have the name of a figure, and returns them. */
    SQLMetric[] set(Map metrics) {
        List told = new ArrayList();
        for (int i = 0; i < names.length; i++) {
            if (metrics.contains(names[i])) {
                SQLMetric metric = (SQLMetric) metrics.apply(names[i]);
                metric.set(numbers[i]);
                told.add(metric);
            }
        }
        return (SQLMetric[]) told.toArray(new SQLMetric[0]);
    }
}
