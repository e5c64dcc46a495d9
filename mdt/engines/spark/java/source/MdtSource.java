// The data source of format("mdt") and USING mdt. Jar.java declares it under this name. Spark creates an instance and
// uses the interfaces that it implements:
//
//     RelationProvider, SchemaRelationProvider   spark.read.format("mdt"), catalog tables: createRelation returns a relation
//     CreatableRelationProvider                  df.write.format("mdt"), CREATE TABLE … AS SELECT: createRelation writes rows
//     StreamSourceProvider, StreamSinkProvider   readStream and writeStream: MdtStream and MdtSink
//
// Python opens the table (Python.java) and returns a frame, whose plan becomes a relation: MdtRelation if only files
// are read, otherwise FrameRelation, for example for an incremental query.
package mdt.spark;

import java.util.function.Function;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.SchemaRelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

public class MdtSource implements DataSourceRegister, RelationProvider, SchemaRelationProvider, CreatableRelationProvider,
        StreamSourceProvider, StreamSinkProvider {
    static final String NAME = "mdt";

    public String shortName() {
        return NAME;
    }

    public BaseRelation createRelation(SQLContext context, Map options) {
        return relation(context.sparkSession(), options, null);
    }

    /** columns: as declared by the user or the catalog. */
    public BaseRelation createRelation(SQLContext context, Map options, StructType columns) {
        return relation(context.sparkSession(), options, columns);
    }

    /** Writes rows. The result tells Spark the table's columns. */
    public BaseRelation createRelation(SQLContext context, SaveMode mode, Map options, Dataset rows) {
        SparkSession session = context.sparkSession();
        LogicalPlan plan = Python.write(session, options, mode.toString(), rows);
        return new FrameRelation(session, options, plan, commented(plan.schema(), rows.schema()));
    }

    /** Returns columns with missing comments taken from the catalog's columns of the same names. */
    static StructType commented(StructType columns, StructType commentedColumns) {
        StructField[] fields = (StructField[]) columns.fields().clone();
        for (int i = 0; i < fields.length; i++) {
            for (StructField commentedField : commentedColumns.fields()) {
                if (commentedField.name().equals(fields[i].name()) && fields[i].getComment().isEmpty() && commentedField.getComment().isDefined()) {
                    fields[i] = fields[i].withComment((String) commentedField.getComment().get());
                }
            }
        }
        return new StructType(fields);
    }

    public Tuple2 sourceSchema(SQLContext context, Option columns, String provider, Map options) {
        return new Tuple2(NAME, stream(context, columns, options).schema());
    }

    /** checkpoint: a directory for the stream's state, which is not used. */
    public Source createSource(SQLContext context, String checkpoint, Option columns, String provider, Map options) {
        return stream(context, columns, options);
    }

    /** Opens the table of a stream. columns: as declared by the user. */
    private static MdtStream stream(SQLContext context, Option columns, Map options) {
        SparkSession session = context.sparkSession();
        Function stream = (Function) Python.ask("stream", session, options, null, null);
        String columnsJson = columns.isEmpty() ? null : ((StructType) columns.get()).json();
        String[] answers = Python.texts(Python.ask(stream, "columns", session, null, columnsJson, null));
        return new MdtStream((org.apache.spark.sql.classic.SparkSession) session, stream, (StructType) DataType.fromJson(answers[0]));
    }

    public Sink createSink(SQLContext context, Map options, Seq partitionBy, OutputMode mode) {
        Map allOptions = partitionBy.isEmpty() ? options : Scala.with(options, CommandRule.PARTITIONS, Json.text(Scala.list(partitionBy)));
        return new MdtSink(allOptions, mode.toString());
    }

    /** columns: the columns that the table must have, with comments, which only the catalog stores; null for any. */
    static BaseRelation relation(SparkSession session, Map options, StructType columns) {
        LogicalPlan plan = Python.read(session, options, columns == null ? null : columns.json());
        StructType schema = columns == null ? plan.schema() : commented(plan.schema(), columns);
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            return new MdtRelation((HadoopFsRelation) ((LogicalRelation) plan).relation(), schema, options);
        }
        return new FrameRelation(session, options, plan, schema);
    }
}
