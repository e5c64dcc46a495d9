// Python's estimates of a relation in the form of Spark's optimizer. Their JSON is documented at the head of
// answers.py.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.AttributeMap$;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.ColumnStat;
import org.apache.spark.sql.catalyst.plans.logical.Histogram;
import org.apache.spark.sql.catalyst.plans.logical.HistogramBin;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.TimestampNTZType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;

final class Measures {
    private static final int VERSION = 2; // of Spark's column statistics, CatalogColumnStat.VERSION

    private Measures() {}

    /**
     * Returns estimates in Spark's form. output: all columns; columns: those with statistics; costs: true for rows and
     * columns, false for the size alone.
     */
    static Statistics of(JsonNode estimate, Seq output, List columns, boolean costs, SQLConf conf) {
        boolean histograms = conf.histogramEnabled();
        if (!costs) {
            long bytes = (long) (estimate.get("bytes").asLong() * conf.fileCompressionFactor());
            scala.math.BigInt inFiles = number(BigInteger.valueOf(Math.max(1L, bytes)));
            scala.math.BigInt inMemory = EstimationUtils.getOutputSize(
                    output, number(BigInteger.valueOf(estimate.get("rows").asLong())), AttributeMap$.MODULE$.empty());
            return new Statistics(inFiles.max(inMemory), Option.empty(), AttributeMap$.MODULE$.empty(), false);
        }
        List statistics = new ArrayList();
        List attributes = new ArrayList();
        for (Object item : columns) {
            AttributeReference column = (AttributeReference) item;
            JsonNode columnEstimate = estimate.get("columns").get(column.name());
            if (columnEstimate != null) {
                statistics.add(new Tuple2(column, column(columnEstimate, column.dataType(), histograms)));
            }
            attributes.add(column);
        }
        scala.math.BigInt rows = number(BigInteger.valueOf(estimate.get("rows").asLong()));
        Seq seq = Scala.seq(statistics);
        return new Statistics(
                EstimationUtils.getOutputSize(Scala.seq(attributes), rows, AttributeMap$.MODULE$.apply(seq)),
                Option.apply(rows), AttributeMap$.MODULE$.apply(seq), false);
    }

    /** Returns the names of the columns whose values exclude no file. */
    static Set spread(JsonNode estimate) {
        Set spread = new HashSet();
        JsonNode names = estimate.get("spread");
        for (Object name : names) {
            spread.add(((JsonNode) name).asText());
        }
        return spread;
    }

    /** Returns true if Spark's cost model supports statistics of a type. It fails for other types. */
    static boolean has(DataType type) {
        return JsonValue.can(type) && !(type instanceof TimestampNTZType);
    }

    private static ColumnStat column(JsonNode estimate, DataType type, boolean histograms) {
        JsonNode low = estimate.get("low");
        JsonNode high = estimate.get("high");
        boolean bounded = !low.isNull() && !high.isNull();
        Long mean = estimate.get("bytes").asLong();
        return new ColumnStat(
                estimate.get("distinct").isNull() ? Option.empty() : Option.apply(number(estimate.get("distinct").bigIntegerValue())),
                bounded ? Option.apply(value(low.asDouble(), type, RoundingMode.FLOOR)) : Option.empty(),
                bounded ? Option.apply(value(high.asDouble(), type, RoundingMode.CEILING)) : Option.empty(),
                Option.apply(number(estimate.get("nulls").bigIntegerValue())),
                Option.apply(mean), Option.apply(mean),
                histograms && estimate.has("bins") ? Option.apply(histogram(estimate)) : Option.empty(), VERSION);
    }

    /** Returns a bound in Spark's representation of a type. */
    private static Object value(double bound, DataType type, RoundingMode mode) {
        if (type instanceof DoubleType) {
            return Double.valueOf(bound);
        }
        if (type instanceof FloatType) {
            return Float.valueOf((float) bound);
        }
        BigDecimal exact = new BigDecimal(bound);
        if (type instanceof DecimalType) {
            return Decimal.apply(exact.setScale(((DecimalType) type).scale(), mode));
        }
        long rounded = (long) (mode == RoundingMode.FLOOR ? Math.floor(bound) : Math.ceil(bound));
        return JsonValue.value(type instanceof BooleanType ? String.valueOf(rounded != 0) : String.valueOf(rounded), type);
    }

    private static Histogram histogram(JsonNode estimate) {
        JsonNode jsonBins = estimate.get("bins");
        HistogramBin[] bins = new HistogramBin[jsonBins.size()];
        for (int i = 0; i < bins.length; i++) {
            JsonNode bin = (JsonNode) jsonBins.get(i);
            bins[i] = new HistogramBin(((JsonNode) bin.get(0)).asDouble(), ((JsonNode) bin.get(1)).asDouble(),
                    ((JsonNode) bin.get(2)).asLong());
        }
        return new Histogram(estimate.get("height").asDouble(), bins);
    }

    private static scala.math.BigInt number(BigInteger value) {
        return new scala.math.BigInt(value);
    }
}
