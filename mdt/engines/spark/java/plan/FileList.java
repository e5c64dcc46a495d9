// All files of a version of a table in Spark's form, decoded from Python's bytes (the format is at the head of
// file_index.py). A version is sent once, completely or as the difference from a version that is here. Later replies
// refer to its number. The deleted rows of a file are requested when a query reads it, and cached.
package mdt.spark;

import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;

final class FileList {
    private static final long BLOCK_BYTES = 128L << 20; // Hadoop's value for local files; Spark needs nothing else
    final long bytes; // of all files
    final boolean hasDead; // true if a file has deleted rows
    private final FileStatus[] files;
    private final byte[][] plain; // metadata of each file without its deleted rows; null: defaults
    private final byte[][] about; // metadata of each file; null: defaults
    private final String[] vectorObjects; // the object with the deleted rows of each file; null: none
    private final boolean[] dead; // true if it has deleted rows
    private final FileStatusWithMetadata[] complete; // each file, read completely; null: its deleted rows are not known yet

    /**
     * before: the version to which a difference applies, or null if all files are sent. cached: true if executors cache
     * footers, and verify them when reading.
     */
    FileList(FileList before, ByteBuffer reply, boolean cached) {
        int[] removed = before == null ? new int[0] : Reply.ints(reply, reply.getInt());
        int[] changed = before == null ? removed : Reply.ints(reply, reply.getInt());
        int[] nowDead = before == null ? removed : Reply.ints(reply, changed.length);
        int remaining = before == null ? 0 : before.count() - removed.length;
        int count = remaining + reply.getInt();
        this.files = new FileStatus[count];
        this.plain = new byte[count][];
        this.about = new byte[count][];
        this.vectorObjects = new String[count];
        this.dead = new boolean[count];
        this.complete = new FileStatusWithMetadata[count];
        if (before != null) {
            before.leave(this, removed, changed, nowDead);
        }
        read(reply, remaining, cached);
        long total = 0;
        boolean anyDead = false;
        for (int i = 0; i < count; i++) {
            total += files[i].getLen();
            anyDead |= dead[i];
        }
        this.bytes = total;
        this.hasDead = anyDead;
    }

    /** Reads the files from a position on. */
    private void read(ByteBuffer reply, int first, boolean cached) {
        int count = files.length - first;
        long[] sizes = Reply.longs(reply, count);
        long[] offsets = Reply.longs(reply, count);
        long[] fileBytes = Reply.longs(reply, count);
        int[] footerBytes = Reply.ints(reply, count);
        int[] footerCrcs = Reply.ints(reply, count);
        int[] versions = Reply.ints(reply, count);
        int[] nowDead = Reply.ints(reply, count);
        String[] uris = Reply.texts(reply, count);
        for (int i = 0; i < count; i++) {
            String uri = uris[i];
            boolean isFooterCached = cached && footerBytes[i] > 0;
            if (offsets[i] >= 0 || isFooterCached) {
                uri = BlockFileSystem.path(uri, Math.max(0L, offsets[i]), sizes[i], fileBytes[i],
                        isFooterCached ? footerBytes[i] : 0, footerCrcs[i]);
            }
            FileStatus file = new FileStatus(sizes[i], false, 1, BLOCK_BYTES, 0L, new Path(URI.create(uri)));
            begin(first + i, file, Selection.about(isFooterCached ? 0 : footerBytes[i], footerCrcs[i], versions[i]), nowDead[i] != 0);
        }
    }

    /** Sets a file whose deleted rows are not known yet. */
    private void begin(int position, FileStatus file, byte[] plainAbout, boolean hasDead) {
        files[position] = file;
        plain[position] = plainAbout;
        about[position] = plainAbout;
        dead[position] = hasDead;
        complete[position] = hasDead ? null : new FileStatusWithMetadata(file, Selection.metadata(plainAbout, null, null));
    }

    /**
     * Copies the remaining files to a later version. removed, changed: sorted positions here; nowDead: 1 for changed files
     * that have deleted rows.
     */
    private synchronized void leave(FileList later, int[] removed, int[] changed, int[] nowDead) {
        int position = 0;
        int nextRemoved = 0;
        int nextChanged = 0;
        for (int i = 0; i < files.length; i++) {
            if (nextRemoved < removed.length && removed[nextRemoved] == i) {
                nextRemoved++;
                continue;
            }
            if (nextChanged < changed.length && changed[nextChanged] == i) {
                later.begin(position, files[i], plain[i], nowDead[nextChanged] != 0);
                nextChanged++;
            } else {
                later.files[position] = files[i];
                later.plain[position] = plain[i];
                later.about[position] = about[i];
                later.vectorObjects[position] = vectorObjects[i];
                later.dead[position] = dead[i];
                later.complete[position] = complete[i];
            }
            position++;
        }
    }

    /**
     * Returns the sorted positions of files whose deleted rows are not known. positions: positions in the list, or null for
     * all.
     */
    synchronized List unknown(int[] positions) {
        List unknown = new ArrayList();
        for (int i = 0; i < (positions == null ? files.length : positions.length); i++) {
            int position = positions == null ? i : positions[i];
            if (complete[position] == null) {
                unknown.add(position);
            }
        }
        Collections.sort(unknown);
        return unknown;
    }

    /** Stores the deleted rows of files returned by {@link #unknown}, or their locations. */
    synchronized void know(List positions, ByteBuffer reply) {
        int count = positions.size();
        byte[][] bitmaps = Answer.bitmaps(reply, count);
        int[] numbers = Reply.ints(reply, count);
        long[] offsets = Reply.longs(reply, count);
        int[] bytes = Reply.ints(reply, count);
        int[] crcs = Reply.ints(reply, count);
        int[] rows = Reply.ints(reply, count);
        String[] objects = objects(reply);
        for (int i = 0; i < count; i++) {
            int position = (Integer) positions.get(i);
            if (complete[position] == null) { // otherwise another query has requested it, too
                byte[] where = numbers[i] < 0 ? null : ByteBuffer.allocate(Vectors.BYTES)
                        .putLong(offsets[i]).putInt(bytes[i]).putInt(crcs[i]).putInt(rows[i]).array();
                about[position] = Selection.withDead(about[position], where, bitmaps[i]);
                vectorObjects[position] = numbers[i] < 0 ? null : objects[numbers[i]]; // shared by all its files
                complete[position] = new FileStatusWithMetadata(files[position], Selection.metadata(about[position], vectorObjects[position], null));
            }
        }
    }

    private static String[] objects(ByteBuffer reply) {
        String[] objects = new String[reply.getInt()];
        long[] bytes = Reply.longs(reply, objects.length);
        String[] uris = Reply.texts(reply, objects.length);
        for (int i = 0; i < objects.length; i++) {
            objects[i] = Vectors.object(uris[i], bytes[i]);
        }
        return objects;
    }

    int count() {
        return files.length;
    }

    Path path(int position) {
        return files[position].getPath();
    }

    /**
     * Returns a file for reading. Its deleted rows must be known. candidates: bitmap of the candidate positions, or null
     * for all.
     */
    FileStatusWithMetadata file(int position, byte[] candidates) {
        if (complete[position] == null) {
            throw new IllegalStateException("dead rows of " + files[position].getPath() + " are not known");
        }
        return candidates == null ? complete[position]
                : new FileStatusWithMetadata(files[position], Selection.metadata(about[position], vectorObjects[position], candidates));
    }
}
