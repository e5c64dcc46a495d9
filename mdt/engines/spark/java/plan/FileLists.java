// The versions of the list of files that Python sent lately: frames of one relation share them, each with a FileSource of its own.
// Java may take them back when memory is short (some 550 bytes a file), as it does with what only a SoftReference leads to: they are
// sent again then. What a query reads it holds itself.
package mdt.spark;

import java.lang.ref.SoftReference;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

final class FileLists {
    private static final int VERSIONS_MAX = 8; // queries that run side by side may be pinned to different ones
    private static final int FILES_MAX = 250000; // of all versions together, but two are kept whatever they are; also in limits.py
    private final Map versions = new LinkedHashMap(16, 0.75f, true); // number -> reference to a FileList, the oldest use first
    private int newest = -1;
    private volatile long bytesNewest = -1;
    private volatile boolean hasDead;

    /** Returns the bytes of all files of the newest version that was seen, -1 if none was. */
    long bytes() {
        return bytesNewest;
    }

    /** Returns whether a file of any version had dead rows. */
    boolean hasDead() {
        return hasDead;
    }

    /** Returns the versions that are still here, number -> FileList: whoever holds the map keeps them here. */
    synchronized Map known() {
        Map found = new HashMap();
        for (Iterator i = versions.entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            Object files = ((SoftReference) each.getValue()).get();
            if (files != null) {
                found.put(each.getKey(), files);
            }
        }
        return found;
    }

    synchronized void remember(Integer version, FileList files) {
        versions.put(version, new SoftReference(files));
        int most = Math.max(2, Math.min(VERSIONS_MAX, FILES_MAX / Math.max(1, files.count())));
        while (versions.size() > most) {
            versions.remove(versions.keySet().iterator().next());
        }
        hasDead |= files.hasDead;
        if (version.intValue() >= newest) {
            newest = version.intValue();
            bytesNewest = files.bytes;
        }
    }
}
