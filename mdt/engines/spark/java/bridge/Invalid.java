// An Invalid error (mdt/errors.py) with the condition and SQLSTATE for PySpark's getCondition and getSqlState.
package mdt.spark;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkThrowable;

final class Invalid extends IllegalArgumentException implements SparkThrowable {
    Invalid(String message) {
        super("Invalid: " + message);
    }

    public String getCondition() {
        return "MDT_INVALID";
    }

    public String getSqlState() {
        return "22023";
    }

    public Map getMessageParameters() {
        return Collections.EMPTY_MAP;
    }
}
