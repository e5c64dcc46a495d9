// A position in the history of a table, as text that Python creates and parses (mdt/source/streaming.py).
package mdt.spark;

import org.apache.spark.sql.execution.streaming.Offset;

final class MdtOffset extends Offset {
    private final String text;

    MdtOffset(String text) {
        this.text = text;
    }

    public String json() {
        return text;
    }
}
