// Session settings that would change the result of Spark's Parquet reader, and their fixed values in our scans. The
// result of a query must not depend on them: sessions set them for files of other writers, and our planner prunes by
// stored values.
//
// Two of them are options of the relation, which have precedence over the session: a missing or corrupt file is an
// error, not an empty file. The others are in the configuration of Spark's format. Spark 4.0 does not use it, so there
// only the calendars are fixed.
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
        {"spark.sql.parquet.recordLevelFilter.enabled", "false"}, // it distinguishes 0.0 from -0.0
        {"spark.sql.caseSensitive", "true"} // of the columns in files: names that differ in case are different columns
    };

    private Pinned() {}

    /** Returns the options of a relation with ours added. */
    static Map relation(Map options) {
        return with(options, OF_RELATION);
    }

    /** Returns the options of a relation without ours, as a user set them. */
    static Map given(Map options) {
        Map left = options;
        for (String[] setting : OF_RELATION) {
            Option value = options.get(setting[0]);
            if (value.isDefined() && value.get().equals(setting[1])) {
                left = Scala.without(left, setting[0]);
            }
        }
        return left;
    }

    /** Returns the options of a reader with ours added. */
    static Map reader(Map options) {
        return with(options, OF_READER);
    }

    /** Returns a copy of a session's configuration with our values. */
    static SQLConf conf(SQLConf session) {
        SQLConf pinned = session.clone();
        for (String[] setting : SETTINGS) {
            pinned.setConfString(setting[0], setting[1]);
        }
        return pinned;
    }

    private static Map with(Map options, String[][] values) {
        Map updated = options;
        for (String[] value : values) {
            updated = Scala.with(updated, value[0], value[1]);
        }
        return updated;
    }
}
