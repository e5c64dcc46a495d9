// What format("mdt") and USING mdt mean to Spark. Jar.java lists it as a data source of that name; Spark makes an instance and
// looks which of its interfaces it has:
//
//     RelationProvider, SchemaRelationProvider   spark.read.format("mdt"), tables of the catalog: createRelation gives a relation
//     CreatableRelationProvider                  df.write.format("mdt"), CREATE TABLE … AS SELECT: createRelation writes rows
//     StreamSourceProvider, StreamSinkProvider   readStream and writeStream: MdtStream and MdtSink
//
// What a table is, Python knows (Python.java). It answers with a frame, and a relation is made of its plan: MdtRelation if
// files are read as they are, FrameRelation if there is more to do, as for an incremental query.
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
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;

public class MdtSource implements DataSourceRegister, RelationProvider, SchemaRelationProvider, CreatableRelationProvider,
        StreamSourceProvider, StreamSinkProvider {
    static final String NAME = "mdt";

    public String shortName() {
        return NAME;
    }

    public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map options) {
        return relation(context.sparkSession(), options, null);
    }

    /** columns: what the user, or the catalog, says that the table has. */
    public BaseRelation createRelation(
            SQLContext context, scala.collection.immutable.Map options, StructType columns) {
        return relation(context.sparkSession(), options, columns);
    }

    /** Writes; what is returned tells Spark which columns the table has. */
    public BaseRelation createRelation(
            SQLContext context, SaveMode mode, scala.collection.immutable.Map options, Dataset rows) {
        SparkSession session = context.sparkSession();
        org.apache.spark.sql.classic.Dataset written = Python.write(
                session, options, mode.toString(), (org.apache.spark.sql.classic.Dataset) rows);
        LogicalPlan plan = written.queryExecution().analyzed();
        return new FrameRelation(session, options, plan, commented(plan.schema(), rows.schema()));
    }

    /** Returns columns with the comments of those of the same names, which the catalog keeps. */
    private static StructType commented(StructType columns, StructType said) {
        StructField[] found = (StructField[]) columns.fields().clone();
        for (int i = 0; i < found.length; i++) {
            for (int k = 0; k < said.fields().length; k++) {
                StructField other = said.fields()[k];
                if (other.name().equals(found[i].name()) && other.getComment().isDefined()) {
                    found[i] = found[i].withComment((String) other.getComment().get());
                }
            }
        }
        return new StructType(found);
    }

    public Tuple2 sourceSchema(
            SQLContext context, Option columns, String provider, scala.collection.immutable.Map options) {
        SparkSession session = context.sparkSession();
        return new Tuple2(NAME, Python.columns(Python.stream(session, options), session, said(columns)));
    }

    /** checkpoint: where the stream keeps what it needs; ours needs nothing. */
    public Source createSource(SQLContext context, String checkpoint, Option columns, String provider,
            scala.collection.immutable.Map options) {
        SparkSession session = context.sparkSession();
        Function stream = Python.stream(session, options);
        return new MdtStream(session, stream, Python.columns(stream, session, said(columns)));
    }

    public Sink createSink(SQLContext context, scala.collection.immutable.Map options,
            scala.collection.immutable.Seq partitionBy, OutputMode mode) {
        scala.collection.immutable.Map all = options;
        if (!partitionBy.isEmpty()) {
            all = (scala.collection.immutable.Map) options.updated("partition_by", partitionBy.mkString(","));
        }
        return new MdtSink(context.sparkSession(), all, mode.toString());
    }

    private static String said(Option columns) {
        return columns.isEmpty() ? null : ((StructType) columns.get()).json();
    }

    /** columns: what the table must have, with comments, which the catalog alone keeps; null for any. */
    static BaseRelation relation(SparkSession session, scala.collection.immutable.Map options, StructType columns) {
        LogicalPlan plan = Python.read(session, options, columns == null ? null : columns.json()).queryExecution().analyzed();
        StructType schema = columns == null ? plan.schema() : commented(plan.schema(), columns);
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            return new MdtRelation((HadoopFsRelation) ((LogicalRelation) plan).relation(), schema, options);
        }
        return new FrameRelation(session, options, plan, schema);
    }
}
