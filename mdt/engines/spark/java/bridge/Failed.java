// An mdt error (mdt/errors.py) other than Invalid and Unsupported, as an error of a query with Python's condition and
// SQLSTATE.
package mdt.spark;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.execution.QueryExecutionException;

final class Failed extends QueryExecutionException implements SparkThrowable {
    private final String condition;
    private final String state;

    Failed(String condition, String state, String message) {
        super(message, null);
        this.condition = condition;
        this.state = state;
    }

    public String getCondition() {
        return condition;
    }

    public String getSqlState() {
        return state;
    }

    public Map getMessageParameters() {
        return Collections.EMPTY_MAP;
    }
}
