// A SQL statement that changes rows of an mdt table, for Python. Spark alone evaluates its conditions and values, which
// are Catalyst expressions. Python executes it in one of two ways:
//
//     plain    a simple condition and constant values: as JSON, for t.delete_where and t.update_where
//     rows     otherwise: a frame with a row for each row that changes (Edits.java), for t.merge
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;

public abstract class Statement extends SqlCommand {
    final Target target;

    /** counts: the names of its counts. */
    Statement(Target target, String kind, String[] counts) {
        super(kind, counts(counts));
        this.target = target;
    }

    List carriedOut(SparkSession session) {
        List counts = counted(Python.ask("change", session, target.options(), command(), this));
        target.changed();
        return counts;
    }

    /** Returns condition and constants as JSON, simplified by Spark's optimizer, or null if the statement has more. */
    public abstract String plain();

    /**
     * Returns as JSON the columns, at least the key, by which a frame can identify rows without reading the table, or
     * null.
     */
    public abstract String byKey(List key, List partition);

    /**
     * Prepares rows and clauses. on: columns that identify a row; fixed: columns that cannot be set; byKey: true to
     * avoid reading the table. Refuses statements that cannot be executed.
     */
    public abstract void prepare(List on, List fixed, boolean byKey);

    /** Returns the clauses of a merge as JSON. Edits refer to them by number. */
    public abstract String clauses();

    /** Returns the edits based on the state after the commit seq. */
    public abstract Dataset rows(long seq);
}
