// A JAR of the classes of this package, in a temporary directory of the driver, and on the class path of every thread there.
// It names MdtSource as a data source, which is how Spark finds what format("mdt") means: Java's ServiceLoader looks for a
// file of that name in META-INF/services. The JAR stays as long as the JVM, since executors may fetch it at any time.
//
// This class alone is called before the JAR is there, by Python, which has the bytes of the JAR and takes this class out of them. It is
// called as a Function: Py4J remembers methods by the names of classes, and a JVM may see several classes of this name.
package mdt.spark;

import java.io.File;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.attribute.FileAttribute;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.function.Function;
import org.apache.spark.util.MutableURLClassLoader;

public class Jar implements Function {
    /** Takes the bytes of the JAR. Returns a new Factory, whose class is that of the JAR, prepared. */
    public Object apply(Object jar) {
        try {
            String path = write((byte[]) jar);
            ClassLoader loader = onPathOfAll(new File(path).toURI().toURL(), Thread.currentThread().getContextClassLoader());
            Class type = loader.loadClass("mdt.spark.Factory"); // of another loader than this class: its methods are looked up
            Object factory = type.newInstance();
            type.getMethod("prepare", new Class[] {String.class}).invoke(factory, new Object[] {path});
            return factory;
        } catch (Exception unusable) {
            throw new UnsupportedOperationException(unusable.getCause() == null ? unusable : unusable.getCause());
        }
    }

    private static String write(byte[] jar) throws Exception {
        // By its content: executors keep what they have fetched under its name.
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(jar);
        String name = "mdt-spark-" + HexFormat.of().formatHex(digest).substring(0, 16) + ".jar";
        File folder = Files.createTempDirectory("mdt-jar-", new FileAttribute[0]).toFile();
        File file = new File(folder, name);
        folder.deleteOnExit(); // last in, first out: the folder is empty when it is its turn
        file.deleteOnExit();
        Files.write(file.toPath(), jar, new OpenOption[0]);
        return file.getPath();
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
