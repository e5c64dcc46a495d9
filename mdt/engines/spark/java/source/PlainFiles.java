// A frame that is nothing but columns of Parquet files: Python reads these itself, so their rows do not pass through the JVM, where each would be
// taken apart and put together. Whatever else a plan does, or a session wants of a reader, leaves the frame to Spark.
package mdt.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.internal.SessionState;
import scala.jdk.javaapi.CollectionConverters;

final class PlainFiles {
    // what decides which files there are, or which columns: both are known by now
    private static final Set HARMLESS = new HashSet(Arrays.asList(new Object[] {
        "path", "paths", "__paths__", "mergeschema", "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter", "compression"
    }));
    private static final String[][] WANTED = { // settings, and what they must be
        {"spark.sql.files.ignoreCorruptFiles", "false"}, {"spark.sql.files.ignoreMissingFiles", "false"},
        {"spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED"}, {"spark.sql.parquet.int96RebaseModeInRead", "CORRECTED"},
        {"spark.sql.parquet.int96TimestampConversion", "false"}, {"spark.sql.parquet.fieldId.read.enabled", "false"}
    };

    private PlainFiles() {}

    /** Returns {"files": [[path, bytes], ...], "columns": [name in the files, ...]} of a frame, JSON, in the order of its columns; null without. */
    static String of(Dataset rows) throws JsonProcessingException {
        LogicalPlan plan = rows.queryExecution().optimizedPlan();
        if (plan instanceof Repartition && !((Repartition) plan).shuffle()) { // coalesce: how many tasks there are is decided anew
            plan = ((Repartition) plan).child();
        }
        List columns = new ArrayList(Scala.list(plan.output()));
        if (plan instanceof Project) {
            columns = new ArrayList(Scala.list(((Project) plan).projectList()));
            plan = ((Project) plan).child();
        }
        if (!(plan instanceof LogicalRelation) || !(((LogicalRelation) plan).relation() instanceof HadoopFsRelation)) {
            return null;
        }
        HadoopFsRelation relation = (HadoopFsRelation) ((LogicalRelation) plan).relation();
        List names = names(columns, Scala.list(plan.output()));
        List files = isPlain(relation, rows.sparkSession().sessionState()) ? files((InMemoryFileIndex) relation.location()) : null;
        if (names == null || files == null) {
            return null;
        }
        Map found = new HashMap();
        found.put("files", files);
        found.put("columns", names);
        return new ObjectMapper().writeValueAsString(found);
    }

    /** Returns the names in the files of columns that are nothing else, or are called otherwise; null if one is made. */
    private static List names(List columns, List output) {
        List found = places(columns, output);
        for (int i = 0; found != null && i < found.size(); i++) {
            found.set(i, ((NamedExpression) output.get(((Integer) found.get(i)).intValue())).name());
        }
        return found;
    }

    /** Returns of each column its place in the output of a plan, of which it is a column, maybe called otherwise; null if one is made. */
    static List places(List columns, List output) {
        List found = new ArrayList();
        for (int i = 0; i < columns.size(); i++) {
            Expression column = (Expression) columns.get(i);
            if (column instanceof Alias) {
                column = ((Alias) column).child();
            }
            int place = -1;
            for (int j = 0; column instanceof Attribute && j < output.size(); j++) { // _metadata is none of them
                if (((NamedExpression) output.get(j)).exprId().equals(((NamedExpression) column).exprId())) {
                    place = j;
                }
            }
            if (place < 0) {
                return null;
            }
            found.add(Integer.valueOf(place));
        }
        return found;
    }

    // the state is that of the session that the frame is of: another one may be active
    private static boolean isPlain(HadoopFsRelation relation, SessionState state) {
        if (state.newHadoopConf().get("parquet.crypto.factory.class") != null) { // it has the keys of columns
            return false;
        }
        for (Iterator i = CollectionConverters.asJava((scala.collection.Map) relation.options()).keySet().iterator(); i.hasNext(); ) {
            if (!HARMLESS.contains(((String) i.next()).toLowerCase(Locale.ROOT))) {
                return false;
            }
        }
        for (int i = 0; i < WANTED.length; i++) {
            if (!WANTED[i][1].equalsIgnoreCase(state.conf().getConfString(WANTED[i][0]))) {
                return false;
            }
        }
        return relation.fileFormat().getClass() == ParquetFileFormat.class && relation.partitionSchema().isEmpty()
                && relation.bucketSpec().isEmpty() && relation.location().getClass() == InMemoryFileIndex.class;
    }

    /** Returns the files on disks, null if one is elsewhere, or is none that Spark would read. */
    private static List files(InMemoryFileIndex index) {
        List found = new ArrayList();
        for (Iterator i = CollectionConverters.asJava((scala.collection.Iterable) index.allFiles()).iterator(); i.hasNext(); ) {
            FileStatus file = (FileStatus) i.next();
            URI uri = file.getPath().toUri();
            String name = file.getPath().getName();
            if (!"file".equals(uri.getScheme()) || name.startsWith("_") || name.startsWith(".")) {
                return null;
            }
            if (file.getLen() > 0) {
                found.add(new Object[] {uri.getPath(), Long.valueOf(file.getLen())});
            }
        }
        return found;
    }
}
