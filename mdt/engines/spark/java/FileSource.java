// Where the files of one relation come from: the planner in Python, and the versions of the list of files that it sent
// lately. Its one method, ask, is a call from the JVM to Python: some milliseconds, and never while a lock is held, since
// Python may call the JVM meanwhile.
package mdt.spark;

import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.types.StructType;

final class FileSource {
    private static final int VERSIONS_MAX = 8; // queries that run side by side may be pinned to different ones
    private static final int HAS_VERSION = 1; // flags of a reply, as in file_index.py
    private static final int HOLDS_WHEN_READ = 2;
    private static final int HAS_OTHERS = 4;
    final SparkContext context;
    final StructType partitionSchema;
    final String root;
    final DirtyFiles rest; // null: these files are all
    final boolean droppable; // whether the optimizer asks if there are files at all
    private final Function planner;
    private final Map versions = new LinkedHashMap(16, 0.75f, true); // number -> FileList, the oldest use first
    private int newest = -1;
    private volatile long bytesNewest; // -1: not known

    FileSource(Function planner, SparkContext context, StructType partitions, String root, long bytes, boolean droppable,
            DirtyFiles rest) {
        this.planner = planner;
        this.context = context;
        this.partitionSchema = partitions;
        this.root = root;
        this.bytesNewest = bytes;
        this.droppable = droppable;
        this.rest = rest;
    }

    /** Returns the bytes of all files of the newest version that was seen. */
    long bytes() {
        if (bytesNewest < 0) {
            ask(null, QueryKey.unpinned(), null, false); // before the query is pinned, and of no consequence to its rows
        }
        return bytesNewest;
    }

    /**
     * Asks Python which files a query must read. pin, key: of the query; filters: expressions of Catalyst, all of which hold
     * for the rows that it wants, null: none known; reading: the files are about to be read.
     */
    Answer ask(Pin pin, String key, scala.collection.immutable.Seq filters, boolean reading) {
        String conditions = CatalystJson.array(filters == null ? Collections.EMPTY_LIST : Scala.list(filters));
        Answer before = pin == null ? null : pin.answer(this, conditions);
        if (before != null) {
            return before;
        }
        Map known = known(); // held during the call: a version that Python does not send must still be here after it
        String columns = CatalystJson.texts(pin == null ? null : pin.columns(this));
        ByteBuffer reply = Reply.body((byte[]) planner.apply("{\"query\":\"" + key + "\",\"reading\":" + reading
                + ",\"known\":" + known.keySet() + ",\"gone\":" + CatalystJson.texts(Pin.gone())
                + ",\"columns\":" + columns + ",\"filters\":" + conditions + "}"));
        Integer version = Integer.valueOf(reply.getInt());
        int flags = reply.getInt();
        int[] keep = Reply.ints(reply, reply.getInt());
        FileList files = (flags & HAS_VERSION) != 0 ? new FileList(reply) : (FileList) known.get(version);
        remember(version, files);
        Answer answer = new Answer(files, keep, (flags & HAS_OTHERS) != 0 ? new FileList(reply) : null);
        if (pin != null) {
            pin.agree(this, version);
            if ((flags & HOLDS_WHEN_READ) != 0) {
                pin.remember(this, conditions, answer);
            }
        }
        return answer;
    }

    private synchronized Map known() {
        return new HashMap(versions);
    }

    private synchronized void remember(Integer version, FileList files) {
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
