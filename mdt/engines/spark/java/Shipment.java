// Takes the classes of this package to the executors: as a JAR in a temporary directory of the driver, which every executor
// fetches from there when it starts, also one that starts late. So the JAR stays as long as the JVM, and goes with it.
package mdt.spark;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.FileAttribute;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import java.util.WeakHashMap;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.apache.spark.SparkContext;

final class Shipment {
    private final Map shipped = new WeakHashMap(); // contexts that have it: one JVM may see several, one after the other
    private final File jar;

    /** classes: the bytes of each, by the name of its file. */
    Shipment(Map classes) throws Exception {
        Map sorted = new TreeMap(classes);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (Iterator i = sorted.values().iterator(); i.hasNext(); ) {
            digest.update((byte[]) i.next());
        }
        // By its content: executors keep what they have fetched under its name.
        String name = "mdt-spark-" + HexFormat.of().formatHex(digest.digest()).substring(0, 16) + ".jar";
        File folder = Files.createTempDirectory("mdt-jar-", new FileAttribute[0]).toFile();
        this.jar = new File(folder, name);
        folder.deleteOnExit(); // last in, first out: the folder is empty when it is its turn
        jar.deleteOnExit();
        write(sorted);
    }

    private void write(Map classes) throws IOException {
        ZipOutputStream out = new ZipOutputStream(new FileOutputStream(jar));
        try {
            for (Iterator i = classes.entrySet().iterator(); i.hasNext(); ) {
                Map.Entry each = (Map.Entry) i.next();
                out.putNextEntry(new ZipEntry((String) each.getKey()));
                out.write((byte[]) each.getValue());
                out.closeEntry();
            }
        } finally {
            out.close();
        }
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
