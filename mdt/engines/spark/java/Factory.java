// What Python calls by py4j: once for every frame. Each call of the JVM from Python costs some 0.1 ms and more, so one call
// does all there is to do, and what it takes is text or numbers.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

public class Factory {
    private Shipment shipment;

    /** To be called first. classes: the bytes of those of this package. */
    public void prepare(Map classes) throws Exception {
        Internals.probe();
        shipment = new Shipment(classes);
    }

    /** Returns the frame of one relation. columns: schema as JSON; forms: of older versions of the columns (Forms.java). */
    public Dataset relation(Function planner, SparkSession session, String columns, String forms, String root) {
        shipment.to(session.sparkContext());
        install(session.experimental());
        FileSource source = new FileSource(planner, session.sparkContext(), root);
        StructType schema = (StructType) DataType.fromJson(columns);
        scala.collection.immutable.Map options = // Parquet compares every page with its checksum
                new scala.collection.immutable.Map.Map1("parquet.page.verify-checksum.enabled", "true");
        if (holdsFloats(schema)) {
            // Parquet's own filter looks for the bits of 0.0 in dictionaries and skips row groups of -0.0. Files
            // that we write now have no dictionary of floats; older ones, and those of others, may.
            options = (scala.collection.immutable.Map) options.updated("parquet.filter.dictionary.enabled", "false");
        }
        HadoopFsRelation relation = new HadoopFsRelation(new MdtFileIndex(source, null), new StructType(),
                schema.asNullable(), scala.Option.empty(), new MdtParquet(new Forms(forms)), options, session);
        return session.baseRelationToDataFrame(relation);
    }

    /** Returns a frame with a query of its own over an analysed plan: it has no files yet, and will be given the newest. */
    public Dataset anew(SparkSession session, LogicalPlan plan) {
        return Dataset.ofRows(session, plan);
    }

    /** Adds our rule to the session's optimizer, unless it is there. */
    private synchronized void install(ExperimentalMethods session) {
        List rules = new ArrayList(Scala.list(session.extraOptimizations()));
        for (int i = 0; i < rules.size(); i++) {
            if (rules.get(i) instanceof PinRule) {
                return;
            }
        }
        rules.add(new PinRule());
        session.extraOptimizations_$eq(Scala.seq(rules)); // how Java spells the assignment of a Scala variable
    }

    /** Returns whether floating point numbers occur anywhere in a type. */
    private static boolean holdsFloats(DataType type) {
        if (type instanceof ArrayType) {
            return holdsFloats(((ArrayType) type).elementType());
        }
        if (type instanceof MapType) {
            return holdsFloats(((MapType) type).keyType()) || holdsFloats(((MapType) type).valueType());
        }
        if (type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            for (int i = 0; i < fields.length; i++) {
                if (holdsFloats(fields[i].dataType())) {
                    return true;
                }
            }
            return false;
        }
        return type instanceof FloatType || type instanceof DoubleType;
    }
}
