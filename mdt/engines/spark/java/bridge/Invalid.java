// An error of the kind Invalid (mdt/errors.py) with the condition and the SQLSTATE that PySpark's getCondition and getSqlState return.
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
