// All files of a version of a table in Spark's form, decoded from Python's bytes (the format is at the head of
// file_index.py). A version is sent once, completely or as the difference from a version that is here. Later replies
// refer to its number. The deleted rows of a file are requested when a query reads it, and cached.
package mdt.spark;

import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
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
    private final String[] elsewhere; // the object with the deleted rows of each file; null: none
    private final boolean[] dead; // true if it has deleted rows
    private final FileStatusWithMetadata[] whole; // each file, read completely; null: its deleted rows are not known yet

    /**
     * before: the version to which a difference applies, or null if all files are sent. cached: true if executors cache
     * footers, and verify them when reading.
     */
    FileList(FileList before, ByteBuffer from, boolean cached) {
        int[] gone = before == null ? new int[0] : Reply.ints(from, from.getInt());
        int[] changed = before == null ? gone : Reply.ints(from, from.getInt());
        int[] nowDead = before == null ? gone : Reply.ints(from, changed.length);
        int kept = before == null ? 0 : before.count() - gone.length;
        int n = kept + from.getInt();
        this.files = new FileStatus[n];
        this.plain = new byte[n][];
        this.about = new byte[n][];
        this.elsewhere = new String[n];
        this.dead = new boolean[n];
        this.whole = new FileStatusWithMetadata[n];
        if (before != null) {
            before.leave(this, gone, changed, nowDead);
        }
        read(from, kept, cached);
        long total = 0;
        boolean some = false;
        for (int i = 0; i < n; i++) {
            total += files[i].getLen();
            some |= dead[i];
        }
        this.bytes = total;
        this.hasDead = some;
    }

    /** Reads the files from a position on. */
    private void read(ByteBuffer from, int first, boolean cached) {
        int n = files.length - first;
        long[] sizes = Reply.longs(from, n);
        long[] offsets = Reply.longs(from, n);
        long[] fileBytes = Reply.longs(from, n);
        int[] footerBytes = Reply.ints(from, n);
        int[] footerCrcs = Reply.ints(from, n);
        int[] versions = Reply.ints(from, n);
        int[] nowDead = Reply.ints(from, n);
        int[] uriEnds = Reply.ints(from, n);
        int uris = from.position() + from.arrayOffset();
        for (int i = 0; i < n; i++) {
            int start = i == 0 ? 0 : uriEnds[i - 1];
            String uri = new String(from.array(), uris + start, uriEnds[i] - start, StandardCharsets.UTF_8);
            boolean far = cached && footerBytes[i] > 0;
            if (offsets[i] >= 0 || far) {
                uri = BlockFileSystem.path(uri, Math.max(0L, offsets[i]), sizes[i], fileBytes[i],
                        far ? footerBytes[i] : 0, footerCrcs[i]);
            }
            FileStatus file = new FileStatus(sizes[i], false, 1, BLOCK_BYTES, 0L, new Path(URI.create(uri)));
            begin(first + i, file, Selection.about(far ? 0 : footerBytes[i], footerCrcs[i], versions[i]), nowDead[i] != 0);
        }
    }

    /** Sets a file whose deleted rows are not known yet. */
    private void begin(int at, FileStatus file, byte[] known, boolean hasDead) {
        files[at] = file;
        plain[at] = known;
        about[at] = known;
        dead[at] = hasDead;
        whole[at] = hasDead ? null : new FileStatusWithMetadata(file, Selection.metadata(known, null, null));
    }

    /**
     * Copies the remaining files to a later version. gone, changed: sorted positions here; nowDead: 1 for changed files
     * that have deleted rows.
     */
    private synchronized void leave(FileList to, int[] gone, int[] changed, int[] nowDead) {
        int at = 0;
        int left = 0;
        int other = 0;
        for (int i = 0; i < files.length; i++) {
            if (left < gone.length && gone[left] == i) {
                left++;
                continue;
            }
            if (other < changed.length && changed[other] == i) {
                to.begin(at, files[i], plain[i], nowDead[other] != 0);
                other++;
            } else {
                to.files[at] = files[i];
                to.plain[at] = plain[i];
                to.about[at] = about[i];
                to.elsewhere[at] = elsewhere[i];
                to.dead[at] = dead[i];
                to.whole[at] = whole[i];
            }
            at++;
        }
    }

    /**
     * Returns the sorted positions of files whose deleted rows are not known. keep: positions in the list, or null for
     * all.
     */
    synchronized List unknown(int[] keep) {
        List found = new ArrayList();
        for (int i = 0; i < (keep == null ? files.length : keep.length); i++) {
            int each = keep == null ? i : keep[i];
            if (whole[each] == null) {
                found.add(Integer.valueOf(each));
            }
        }
        Collections.sort(found);
        return found;
    }

    /** Stores the deleted rows of files returned by {@link #unknown}, or their locations. */
    synchronized void know(List which, ByteBuffer reply) {
        int m = which.size();
        byte[][] bitmaps = Answer.bitmaps(reply, m);
        int[] numbers = Reply.ints(reply, m);
        long[] offsets = Reply.longs(reply, m);
        int[] bytes = Reply.ints(reply, m);
        int[] crcs = Reply.ints(reply, m);
        int[] rows = Reply.ints(reply, m);
        String[] objects = objects(reply);
        for (int i = 0; i < m; i++) {
            int each = ((Integer) which.get(i)).intValue();
            if (whole[each] == null) { // otherwise another query has requested it, too
                byte[] where = numbers[i] < 0 ? null : ByteBuffer.allocate(Vectors.BYTES)
                        .putLong(offsets[i]).putInt(bytes[i]).putInt(crcs[i]).putInt(rows[i]).array();
                about[each] = Selection.withDead(about[each], where, bitmaps[i]);
                elsewhere[each] = numbers[i] < 0 ? null : objects[numbers[i]]; // shared by all its files
                whole[each] = new FileStatusWithMetadata(files[each], Selection.metadata(about[each], elsewhere[each], null));
            }
        }
    }

    private static String[] objects(ByteBuffer from) {
        String[] found = new String[from.getInt()];
        long[] bytes = Reply.longs(from, found.length);
        int[] ends = Reply.ints(from, found.length);
        for (int i = 0; i < found.length; i++) {
            byte[] uri = new byte[ends[i] - (i == 0 ? 0 : ends[i - 1])];
            from.get(uri);
            found[i] = Vectors.object(new String(uri, StandardCharsets.UTF_8), bytes[i]);
        }
        return found;
    }

    int count() {
        return files.length;
    }

    Path path(int position) {
        return files[position].getPath();
    }

    /**
     * Returns a file for reading. Its deleted rows must be known. wanted: bitmap of the candidate positions, or null
     * for all.
     */
    FileStatusWithMetadata file(int position, byte[] wanted) {
        if (whole[position] == null) {
            throw new IllegalStateException("dead rows of " + files[position].getPath() + " are not known");
        }
        return wanted == null ? whole[position]
                : new FileStatusWithMetadata(files[position], Selection.metadata(about[position], elsewhere[position], wanted));
    }
}
