// An error of mdt that a task meets, in the form of which Python makes the error again (failures.py). Spark may be told to leave out
// files that are gone or cannot be read (spark.sql.files.ignoreCorruptFiles): what fails with this is no such file, and its rows are
// not to be lost, so it is an Error, which Spark never takes for one.
package mdt.spark;

import java.util.HashMap;
import java.util.Map;

final class Failure extends Error {
    /** kind: a class of mdt/errors.py; hint: what to do next. */
    Failure(String kind, String message, String hint, Throwable cause) {
        super("mdt-error:" + text(kind, message, hint), cause);
    }

    private static String text(String kind, String message, String hint) {
        Map told = new HashMap();
        told.put("kind", kind);
        told.put("message", message);
        told.put("hint", hint);
        return Json.text(told);
    }
}
