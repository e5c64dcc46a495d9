// An mdt relation with estimates of the files that a query reads. Spark's optimizer asks every node of a plan for its
// size, and with the cost model (spark.sql.cbo.enabled) for row counts and column statistics, before it chooses
// broadcast sides and the order of joins.
package mdt.spark;

import java.util.Collections;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.sources.BaseRelation;
import scala.Option;
import scala.collection.immutable.Seq;

public class MeasuredRelation extends LogicalRelation {
    private final Statistics measured;
    final long rows; // after pruning; in Spark's statistics only if its cost model is on
    final int files; // after pruning
    private final Set spread; // names of columns whose values exclude no file

    MeasuredRelation(LogicalRelation original, HadoopFsRelation relation, Statistics measured, long rows, int files, Set spread) {
        this(relation, original.output(), original.catalogTable(), original.isStreaming(), original.stream(), measured, rows, files, spread);
    }

    /**
     * Returns true if values of a key may exclude files of a relation, which a column with the same range in all files
     * cannot.
     */
    static boolean mayPrune(LogicalPlan relation, Expression key) {
        List columns = relation instanceof MeasuredRelation ? Scala.list(relation.output()) : Collections.EMPTY_LIST;
        for (Object item : columns) {
            AttributeReference column = (AttributeReference) item;
            if (column.semanticEquals(key)) { // a query may spell its name in another case
                return !((MeasuredRelation) relation).spread.contains(column.name());
            }
        }
        return true;
    }

    /** Returns a relation with another file index, and with the estimates of the first. */
    static LogicalRelation with(LogicalRelation original, MdtFileIndex index) {
        HadoopFsRelation oldFiles = (HadoopFsRelation) original.relation();
        HadoopFsRelation files = new HadoopFsRelation(index, oldFiles.partitionSchema(), oldFiles.dataSchema(), oldFiles.bucketSpec(),
                oldFiles.fileFormat(), oldFiles.options(), oldFiles.sparkSession());
        if (!(original instanceof MeasuredRelation)) {
            return original.copy(files, original.output(), original.catalogTable(), original.isStreaming(), original.stream());
        }
        MeasuredRelation previous = (MeasuredRelation) original;
        return new MeasuredRelation(original, files, previous.measured, previous.rows, previous.files, previous.spread);
    }

    /** Spark calls this by reflection when it replaces expressions of a plan, including a relation's columns. */
    public MeasuredRelation(BaseRelation relation, Seq output, Option table, boolean streams,
            Option stream, Statistics measured, long rows, int files, Set spread) {
        super(relation, output, table, streams, stream);
        this.measured = measured;
        this.rows = rows;
        this.files = files;
        this.spread = spread;
    }

    /** The additional arguments of that constructor. */
    public Seq otherCopyArgs() {
        return Scala.seq(measured, rows, files, spread);
    }

    public Statistics computeStats() {
        return measured;
    }

    /** Not equal to a relation without estimates, because a rule that returns an equal node changes nothing. */
    public boolean canEqual(Object other) {
        return other instanceof MeasuredRelation;
    }

    public boolean equals(Object other) {
        return other instanceof MeasuredRelation && super.equals(other) && measured == ((MeasuredRelation) other).measured;
    }

    public int hashCode() {
        return super.hashCode();
    }
}
