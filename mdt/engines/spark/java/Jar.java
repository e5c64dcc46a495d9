// A JAR of the classes of this package, in a temporary directory of the driver, and on the class path of every thread there.
// It names MdtSource as a data source, which is how Spark finds what format("mdt") means: Java's ServiceLoader looks for a
// file of that name in META-INF/services. The JAR stays as long as the JVM, since executors may fetch it at any time.
//
// This class alone is called before the JAR is there, by Python, with what the compiler made.
package mdt.spark;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.attribute.FileAttribute;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.apache.spark.util.MutableURLClassLoader;

public class Jar {
    private static final String SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister";

    /** Writes it. classes: the bytes of each, by the name of its file. Returns its path. */
    public String write(Map classes) throws Exception {
        Map entries = new TreeMap(classes);
        entries.put(SERVICE, "mdt.spark.MdtSource\n".getBytes(StandardCharsets.UTF_8));
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (Iterator i = entries.values().iterator(); i.hasNext(); ) {
            digest.update((byte[]) i.next());
        }
        // By its content: executors keep what they have fetched under its name.
        String name = "mdt-spark-" + HexFormat.of().formatHex(digest.digest()).substring(0, 16) + ".jar";
        File folder = Files.createTempDirectory("mdt-jar-", new FileAttribute[0]).toFile();
        File jar = new File(folder, name);
        folder.deleteOnExit(); // last in, first out: the folder is empty when it is its turn
        jar.deleteOnExit();
        write(jar, entries);
        return jar.getPath();
    }

    private static void write(File jar, Map entries) throws IOException {
        ZipOutputStream out = new ZipOutputStream(new FileOutputStream(jar));
        try {
            for (Iterator i = entries.entrySet().iterator(); i.hasNext(); ) {
                Map.Entry each = (Map.Entry) i.next();
                out.putNextEntry(new ZipEntry((String) each.getKey()));
                out.write((byte[]) each.getValue());
                out.closeEntry();
            }
        } finally {
            out.close();
        }
    }

    /** Returns a new Factory, whose class is that of the JAR. parent: the class loader of a thread that runs Python's calls. */
    public Object factory(String jar, ClassLoader parent) throws Exception {
        return onPathOfAll(new File(jar).toURI().toURL(), parent).loadClass("mdt.spark.Factory").newInstance();
    }

    /**
     * Adds a JAR to the class loader that Spark made for the application, from which those of all threads and sessions
     * inherit. Where something else stands in its place the classes can be had through what is returned, and by nobody else.
     */
    private static ClassLoader onPathOfAll(URL jar, ClassLoader loader) throws MalformedURLException {
        MutableURLClassLoader root = null;
        for (ClassLoader each = loader; each != null; each = each.getParent()) {
            if (each instanceof MutableURLClassLoader) {
                root = (MutableURLClassLoader) each;
            }
        }
        if (root == null) {
            return new URLClassLoader(new URL[] {jar}, loader);
        }
        root.addURL(jar);
        return root;
    }
}
