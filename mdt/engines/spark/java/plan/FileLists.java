// The versions of the list of files that Python sent lately: frames of one relation share them, each with a FileSource of its own.
package mdt.spark;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

final class FileLists {
    private static final int VERSIONS_MAX = 8; // queries that run side by side may be pinned to different ones
    private final Map versions = new LinkedHashMap(16, 0.75f, true); // number -> FileList, the oldest use first
    private int newest = -1;
    private volatile long bytesNewest = -1;

    /** Returns the bytes of all files of the newest version that was seen, -1 if none was. */
    long bytes() {
        return bytesNewest;
    }

    synchronized Map known() {
        return new HashMap(versions);
    }

    synchronized void remember(Integer version, FileList files) {
        versions.put(version, files);
        if (versions.size() > VERSIONS_MAX) {
            versions.remove(versions.keySet().iterator().next());
        }
        if (version.intValue() >= newest) {
            newest = version.intValue();
            bytesNewest = files.bytes;
        }
    }
}
