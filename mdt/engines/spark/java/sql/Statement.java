// A statement of SQL that changes rows of a table of ours, as Python sees it. Its conditions and values are expressions of Catalyst,
// and Spark alone evaluates them; Python carries out what comes of it, in one of two ways:
//
//     plain    the condition is simple and the values are constants: as JSON, for t.delete_where and t.update_where
//     rows     otherwise: a frame with a row for each row that changes (Edits.java), for t.merge
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;

public abstract class Statement extends SqlCommand {
    final Target target;

    /** counts: the names of what it counts. */
    Statement(Target target, String kind, String[] counts) {
        super(kind, counts(counts));
        this.target = target;
    }

    List carriedOut(SparkSession session) {
        List counts = counted(Python.ask("change", session, target.options(), command(), this));
        target.changed();
        return counts;
    }

    /** Returns condition and constants as JSON, as Spark's optimizer has simplified them; null if it is more than that. */
    public abstract String plain();

    /** Returns the columns, as JSON, by which a frame can name rows without reading the table: the key at least; null if there is no such frame. */
    public abstract String byKey(List key, List partition);

    /**
     * Prepares rows and clauses. on: columns that name a row; fixed: columns that cannot be set; byKey: whether the table shall not be read.
     * Refuses what cannot be carried out.
     */
    public abstract void prepare(List on, List fixed, boolean byKey);

    /** Returns the clauses of a merge as JSON, of which each edit names some. */
    public abstract String clauses();

    /** Returns the edits that the state after the commit seq leads to. */
    public abstract Dataset rows(long seq);
}
