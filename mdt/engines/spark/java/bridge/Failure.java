// An mdt error of a task, in the text form from which Python restores it (failures.py). Spark can ignore missing and
// corrupt files (spark.sql.files.ignoreCorruptFiles). That would lose rows here, so this is an Error, which Spark never
// ignores.
package mdt.spark;

import java.util.HashMap;
import java.util.Map;

final class Failure extends Error {
    /** kind: a class of mdt/errors.py; hint: a way to solve the problem. */
    Failure(String kind, String message, String hint, Throwable cause) {
        super("mdt-error:" + text(kind, message, hint), cause);
    }

    private static String text(String kind, String message, String hint) {
        Map fields = new HashMap();
        fields.put("kind", kind);
        fields.put("message", message);
        fields.put("hint", hint);
        return Json.text(fields);
    }
}
