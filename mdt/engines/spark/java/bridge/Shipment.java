// Takes the classes of this package to the executors: every one fetches the JAR (Jar.java) from the driver when it starts,
// also one that starts late.
package mdt.spark;

import java.io.File;
import java.util.Iterator;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.SparkContext;

final class Shipment {
    private final Map shipped = new WeakHashMap(); // contexts that have it: one JVM may see several, one after the other
    private final File jar;

    Shipment(File jar) {
        this.jar = jar;
    }

    /** Lets the executors of a context have the classes, if they have not. */
    synchronized void to(SparkContext context) {
        if (shipped.containsKey(context)) {
            return;
        }
        context.addJar(jar.getPath());
        boolean listed = false; // where it is forbidden, Spark logs an error and goes on
        for (Iterator i = Scala.list(context.listJars()).iterator(); i.hasNext(); ) {
            listed |= ((String) i.next()).endsWith(jar.getName());
        }
        if (!listed) {
            throw new UnsupportedOperationException("this cluster does not let a session add a JAR");
        }
        shipped.put(context, Boolean.TRUE);
    }
}
