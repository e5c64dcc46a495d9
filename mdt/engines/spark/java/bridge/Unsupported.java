// An error of the kind Unsupported (mdt/errors.py) with the condition and the SQLSTATE that PySpark's getCondition and getSqlState return.
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
