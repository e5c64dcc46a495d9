// What Python calls by py4j: once for every frame. Each call of the JVM from Python costs some 0.1 ms and more, so one call
// does all there is to do, and what it takes is text or numbers.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

public class Factory {
    /** Returns the frame of one relation; columns, partitions: schemas as JSON; bytes: of its files, -1: not known. */
    public Dataset relation(Function planner, SparkSession session, String columns, String partitions, String root,
            long bytes, boolean droppable) {
        return frame(source(planner, session, partitions, root, bytes, droppable, null), session, columns);
    }

    /** Returns the frame of a merged table; numbers, deletedColumns: schemas; sameFile, isLive: see DirtyFiles. */
    public Dataset merged(Function clean, Function dirty, Function deleted, SparkSession session, String columns,
            String numbers, String deletedColumns, String sameFile, String isLive, String root) {
        String none = new StructType().json();
        DirtyFiles rest = new DirtyFiles(source(dirty, session, numbers, root, -1L, true, null),
                source(deleted, session, none, root, 1L, false, null),
                (StructType) DataType.fromJson(deletedColumns), sameFile, isLive);
        return frame(source(clean, session, none, root, -1L, true, rest), session, columns);
    }

    /** Returns a frame with a query of its own over an analysed plan: it has no files yet, and will be given the newest. */
    public Dataset anew(SparkSession session, LogicalPlan plan) {
        return Dataset.ofRows(session, plan);
    }

    private FileSource source(Function planner, SparkSession session, String partitions, String root, long bytes,
            boolean droppable, DirtyFiles rest) {
        install(session.experimental());
        StructType parts = (StructType) DataType.fromJson(partitions);
        return new FileSource(planner, session.sparkContext(), parts, root, bytes, droppable, rest);
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

    private static Dataset frame(FileSource source, SparkSession session, String columns) {
        StructType schema = (StructType) DataType.fromJson(columns);
        scala.collection.immutable.Map options = verified();
        if (holdsFloats(schema)) {
            // Parquet's own filter looks for the bits of 0.0 in dictionaries and skips row groups of -0.0. Files
            // that we write now have no dictionary of floats; older ones, and those of others, may.
            options = (scala.collection.immutable.Map) options.updated("parquet.filter.dictionary.enabled", "false");
        }
        HadoopFsRelation relation = new HadoopFsRelation(new MdtFileIndex(source, null), source.partitionSchema,
                schema.asNullable(), scala.Option.empty(), new ParquetFileFormat(), options, session);
        return session.baseRelationToDataFrame(relation);
    }

    /** The options of our relations: Parquet compares every page with its checksum. */
    static scala.collection.immutable.Map verified() {
        return new scala.collection.immutable.Map.Map1("parquet.page.verify-checksum.enabled", "true");
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
