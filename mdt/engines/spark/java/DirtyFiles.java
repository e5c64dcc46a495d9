// The files of a merge-on-read table that have dead rows, and how their live rows are read: a join of the files with a small
// table that holds, for each file, the bit set of its deleted positions. Spark's hidden column _metadata.row_index says at
// which position of its file a row stands.
//
//     Project  columns of the query
//       Filter   the bit of the row's position is not set, in the words of its file
//         Join     left outer, the right side broadcast: number of the file = number of the words
//           dirty files, with row_index         deleted positions: (number, words)
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.analysis.DeduplicateRelations$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructType;

final class DirtyFiles {
    private static final int PLANS_MAX = 32; // one for each set of nested columns that queries read
    final FileSource files;
    private final FileSource deleted;
    private final StructType deletedColumns;
    private final String sameFile;
    private final String isLive;
    private final Map plans = new HashMap(); // names and types of columns -> analysed plan

    /** sameFile: SQL, the condition of the join; isLive: SQL, true of a joined row that is not deleted. */
    DirtyFiles(FileSource files, FileSource deleted, StructType deletedColumns, String sameFile, String isLive) {
        this.files = files;
        this.deleted = deleted;
        this.deletedColumns = deletedColumns;
        this.sameFile = sameFile;
        this.isLive = isLive;
    }

    /** Asks without a pin. Of a call that is no query's nothing can be said: the next one may see another version. */
    boolean mayHaveFiles(String key) {
        return QueryKey.isUnpinned(key) || files.ask(null, key, null, false).count() > 0;
    }

    /** Returns the live rows with the columns of a relation, as a plan whose columns have new ids each time. */
    LogicalPlan live(LogicalRelation like, Pin pin) {
        LogicalPlan known = analysed(like);
        // New ids are what Spark gives the right side of a join of a plan with itself: so one is made, and taken apart.
        Join twice = new Join(known, known, Inner$.MODULE$, scala.Option.empty(), JoinHint$.MODULE$.NONE());
        LogicalPlan fresh = ((Join) DeduplicateRelations$.MODULE$.apply(twice)).right();
        return (LogicalPlan) fresh.transformUp(new PinReplacement(pin));
    }

    /** Returns the plan of live rows without a pin, remembered: to analyse it takes longer than all the rest. */
    private synchronized LogicalPlan analysed(LogicalRelation like) {
        List key = new ArrayList(); // with types: those of nested columns hold but the fields that the query needs
        for (Iterator i = Scala.list(like.output()).iterator(); i.hasNext(); ) {
            Attribute each = (Attribute) i.next();
            key.add(each.name());
            key.add(each.dataType());
        }
        LogicalPlan known = (LogicalPlan) plans.get(key);
        if (known == null) {
            if (plans.size() >= PLANS_MAX) {
                plans.clear();
            }
            known = analyse(like);
            plans.put(key, known);
        }
        return known;
    }

    private LogicalPlan analyse(LogicalRelation like) {
        SparkSession session = (SparkSession) ((HadoopFsRelation) like.relation()).sparkSession();
        Dataset rows = session.baseRelationToDataFrame(PinReplacement.relation(like, files, null));
        Dataset words = session.baseRelationToDataFrame(words(session)).toDF(new String[] {"__mdt_number", "__mdt_words"});
        Column metadata = rows.metadataColumn("_metadata");
        Dataset numbered = rows.withColumn("__mdt_row", metadata.getField("row_index"));
        List inFile = Arrays.asList(((HadoopFsRelation) like.relation()).dataSchema().fieldNames());
        List columns = new ArrayList();
        for (Iterator i = Scala.list(like.output()).iterator(); i.hasNext(); ) {
            Attribute each = (Attribute) i.next();
            if (inFile.contains(each.name())) {
                columns.add(rows.col("`" + each.name().replace("`", "``") + "`"));
            } else { // the hidden column itself: the query asked for it by name
                numbered = numbered.withColumn("__mdt_metadata", fields(metadata, (StructType) each.dataType()));
                columns.add(functions.col("__mdt_metadata"));
            }
        }
        return numbered.join(functions.broadcast(words), functions.expr(sameFile), "left")
                .where(functions.expr(isLive)).select(Scala.seq(columns)).queryExecution().analyzed();
    }

    private HadoopFsRelation words(SparkSession session) {
        return new HadoopFsRelation(new MdtFileIndex(deleted, null), deleted.partitionSchema, deletedColumns,
                scala.Option.empty(), new ParquetFileFormat(), Factory.verified(), session);
    }

    /** Returns a struct of some fields of another, those of wanted. */
    private static Column fields(Column of, StructType wanted) {
        List fields = new ArrayList();
        String[] names = wanted.fieldNames();
        for (int i = 0; i < names.length; i++) {
            fields.add(of.getField(names[i]).as(names[i]));
        }
        return functions.struct(Scala.seq(fields));
    }
}
