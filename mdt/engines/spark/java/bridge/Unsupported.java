// An Unsupported error (mdt/errors.py) with the condition and SQLSTATE for PySpark's getCondition and getSqlState.
package mdt.spark;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkThrowable;

final class Unsupported extends UnsupportedOperationException implements SparkThrowable {
    Unsupported(String message) {
        super("Unsupported: " + message);
    }

    public String getCondition() {
        return "MDT_UNSUPPORTED";
    }

    public String getSqlState() {
        return "0A000";
    }

    public Map getMessageParameters() {
        return Collections.EMPTY_MAP;
    }
}
