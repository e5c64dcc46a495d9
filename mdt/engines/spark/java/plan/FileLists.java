// The recent versions of the file list that Python sent, shared by frames of a relation, each with its own FileSource.
// They are SoftReferences (about 550 bytes per file), which Java may clear when memory is short. They are then sent
// again. Queries hold references to the lists that they read.
package mdt.spark;

import java.lang.ref.SoftReference;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

final class FileLists {
    private static final int VERSIONS_MAX = 8; // concurrent queries may be pinned to different versions
    private static final int FILES_MAX = 250000; // of all versions together; the two latest are always kept; also in limits.py
    private final Map versions = new LinkedHashMap(16, 0.75f, true); // number -> reference to a FileList, least recently used first
    private int newest = -1;
    private volatile long bytesNewest = -1;
    private volatile boolean hasDead;

    /** Returns the bytes of all files of the newest version, or -1 if there is none. */
    long bytes() {
        return bytesNewest;
    }

    /** Returns true if a file of any version had deleted rows. */
    boolean hasDead() {
        return hasDead;
    }

    /** Returns the available versions, number -> FileList. The map keeps them in memory. */
    synchronized Map known() {
        Map listsByNumber = new HashMap();
        for (Object item : versions.entrySet()) {
            Map.Entry each = (Map.Entry) item;
            Object files = ((SoftReference) each.getValue()).get();
            if (files != null) {
                listsByNumber.put(each.getKey(), files);
            }
        }
        return listsByNumber;
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
