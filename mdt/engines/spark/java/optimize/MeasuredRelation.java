// A relation of ours with what Python's planner estimates of the files that a query reads of it. Spark's optimizer asks every node
// of a plan for its size, and if its cost model is on (spark.sql.cbo.enabled) for rows and the values of columns, before it decides
// which side of a join is broadcast and which join comes first.
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
    final long rows; // that are left after pruning; Spark's statistics have them only if its cost model is on
    final int files; // likewise
    private final Set spread; // names of columns whose values leave out no file

    MeasuredRelation(LogicalRelation of, HadoopFsRelation relation, Statistics measured, long rows, int files, Set spread) {
        this(relation, of.output(), of.catalogTable(), of.isStreaming(), of.stream(), measured, rows, files, spread);
    }

    /** Returns whether values of a key may leave out files of a relation: not if it is a column that has the same range in all of them. */
    static boolean mayPrune(LogicalPlan relation, Expression key) {
        List columns = relation instanceof MeasuredRelation ? Scala.list(relation.output()) : Collections.EMPTY_LIST;
        for (int i = 0; i < columns.size(); i++) {
            AttributeReference column = (AttributeReference) columns.get(i);
            if (column.semanticEquals(key)) { // a query may have its name in other letters
                return !((MeasuredRelation) relation).spread.contains(column.name());
            }
        }
        return true;
    }

    /** Returns a relation with another index of files, measured if the first one is. */
    static LogicalRelation with(LogicalRelation of, MdtFileIndex index) {
        HadoopFsRelation old = (HadoopFsRelation) of.relation();
        HadoopFsRelation files = new HadoopFsRelation(index, old.partitionSchema(), old.dataSchema(), old.bucketSpec(),
                old.fileFormat(), old.options(), old.sparkSession());
        if (!(of instanceof MeasuredRelation)) {
            return of.copy(files, of.output(), of.catalogTable(), of.isStreaming(), of.stream());
        }
        MeasuredRelation known = (MeasuredRelation) of;
        return new MeasuredRelation(of, files, known.measured, known.rows, known.files, known.spread);
    }

    /** Spark calls this by reflection where expressions of a plan, and so columns of a relation, are replaced. */
    public MeasuredRelation(BaseRelation relation, Seq output, Option table, boolean streams,
            Option stream, Statistics measured, long rows, int files, Set spread) {
        super(relation, output, table, streams, stream);
        this.measured = measured;
        this.rows = rows;
        this.files = files;
        this.spread = spread;
    }

    /** What that constructor takes beside what the one of a relation does. */
    public Seq otherCopyArgs() {
        return Scala.seq(new Object[] {measured, Long.valueOf(rows), Integer.valueOf(files), spread});
    }

    public Statistics computeStats() {
        return measured;
    }

    /** Not equal to the relation without estimates, whose place it could not take: a rule that gives an equal node changes nothing. */
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
