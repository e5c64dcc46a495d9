// The JAR of this package's classes, in a temporary directory of the driver and on the class path of all its threads.
// It declares MdtSource as a data source in META-INF/services, where Java's ServiceLoader looks for format("mdt"). It
// exists as long as the JVM, because executors may fetch it at any time.
//
// Python calls only this class before the JAR is loaded, and takes it from the bytes of the JAR. It is called as a
// Function, because Py4J caches methods by class name and a JVM may have several classes of this name.
package mdt.spark;

import java.io.File;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.function.Function;
import org.apache.spark.util.MutableURLClassLoader;

public class Jar implements Function {
    /** Takes the bytes of the JAR. Returns a new, prepared Factory of the JAR's class. */
    public Object apply(Object jar) {
        try {
            String path = write((byte[]) jar);
            ClassLoader loader = onPathOfAll(new File(path).toURI().toURL(), Thread.currentThread().getContextClassLoader());
            Class type = loader.loadClass("mdt.spark.Factory"); // of another class loader: methods are looked up
            Object factory = type.newInstance();
            type.getMethod("prepare", String.class).invoke(factory, path);
            return factory;
        } catch (Exception unusable) {
            throw new UnsupportedOperationException(unusable.getCause() == null ? unusable : unusable.getCause());
        }
    }

    private static String write(byte[] jar) throws Exception {
        // Named by content, because executors cache files by name.
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(jar);
        String name = "mdt-spark-" + HexFormat.of().formatHex(digest).substring(0, 16) + ".jar";
        File folder = Files.createTempDirectory("mdt-jar-").toFile();
        File file = new File(folder, name);
        folder.deleteOnExit(); // files are deleted in reverse order, so the folder is empty by then
        file.deleteOnExit();
        Files.write(file.toPath(), jar);
        return file.getPath();
    }

    /**
     * Adds a JAR to the class loader that Spark made for the application, which is inherited by all threads and
     * sessions. If Spark uses another kind of loader, only the returned loader has the classes.
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
