// Settings of a session that would change what Spark's Parquet reader returns, and the values that our scans have instead. A table
// has one answer: sessions set these for files of other writers, and our planner prunes by the values as they are stored.
//
// Two of them are options of the relation, which Spark looks at before the session: a file that is gone or damaged is an error, not
// a file without rows. The others are in the configuration that Spark's format asks for; of Spark 4.0, which does not ask, only the calendars are pinned.
package mdt.spark;

import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.collection.immutable.Map;

final class Pinned {
    private static final String[][] OF_RELATION = {{"ignoreCorruptFiles", "false"}, {"ignoreMissingFiles", "false"}};
    private static final String[][] OF_READER = {{"datetimeRebaseMode", "CORRECTED"}, {"int96RebaseMode", "CORRECTED"}};
    private static final String[][] SETTINGS = {
        {"spark.sql.parquet.binaryAsString", "false"},
        {"spark.sql.parquet.int96AsTimestamp", "true"},
        {"spark.sql.parquet.int96TimestampConversion", "false"},
        {"spark.sql.parquet.inferTimestampNTZ.enabled", "true"},
        {"spark.sql.legacy.parquet.nanosAsLong", "false"},
        {"spark.sql.parquet.fieldId.read.enabled", "false"},
        {"spark.sql.parquet.recordLevelFilter.enabled", "false"}, // which tells 0.0 from -0.0
        {"spark.sql.caseSensitive", "true"} // of the columns in files: names that differ in case are those of two columns
    };

    private Pinned() {}

    /** Returns the options of a relation with ours. */
    static Map relation(Map options) {
        return with(options, OF_RELATION);
    }

    /** Returns the options of a relation less ours, as a user gave them. */
    static Map given(Map options) {
        Map left = options;
        for (int i = 0; i < OF_RELATION.length; i++) {
            Option value = options.get(OF_RELATION[i][0]);
            if (value.isDefined() && value.get().equals(OF_RELATION[i][1])) {
                left = Scala.without(left, OF_RELATION[i][0]);
            }
        }
        return left;
    }

    /** Returns the options of a reader with ours. */
    static Map reader(Map options) {
        return with(options, OF_READER);
    }

    /** Returns a copy of a session's configuration with our values. */
    static SQLConf conf(SQLConf session) {
        SQLConf pinned = session.clone();
        for (int i = 0; i < SETTINGS.length; i++) {
            pinned.setConfString(SETTINGS[i][0], SETTINGS[i][1]);
        }
        return pinned;
    }

    private static Map with(Map options, String[][] values) {
        Map all = options;
        for (int i = 0; i < values.length; i++) {
            all = Scala.with(all, values[i][0], values[i][1]);
        }
        return all;
    }
}
