// Ships the classes of this package to executors, which fetch the JAR (Jar.java) from the driver when they start, at
// any time.
package mdt.spark;

import java.io.File;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.SparkContext;

final class Shipment {
    private final Map shipped = new WeakHashMap(); // contexts that have it; a JVM may use several in turn
    private final File jar;

    Shipment(File jar) {
        this.jar = jar;
    }

    /** Adds the JAR to a context, unless it has it. */
    synchronized void to(SparkContext context) {
        if (shipped.containsKey(context)) {
            return;
        }
        context.addJar(jar.getPath());
        boolean listed = false; // if this is forbidden, Spark logs an error and continues
        for (Object name : Scala.list(context.listJars())) {
            listed |= ((String) name).endsWith(jar.getName());
        }
        if (!listed) {
            throw new UnsupportedOperationException("this cluster does not allow sessions to add a JAR");
        }
        shipped.put(context, true);
    }
}
