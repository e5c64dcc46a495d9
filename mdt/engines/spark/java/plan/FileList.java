// All files of one version of a table, in Spark's own form, decoded from the bytes that Python sends (their layout is
// described at the head of file_index.py). A version is sent once, or what is other in it than in one that is here; later replies
// name it by its number. Which rows of a file are dead is asked for when a query reads it, and kept.
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
    private static final long BLOCK_BYTES = 128L << 20; // what Hadoop says of local files; Spark asks for no more
    final long bytes; // of all files
    final boolean hasDead; // whether rows of some are dead
    private final FileStatus[] files;
    private final byte[][] plain; // what is to be known of each file, but its dead rows; null: nothing
    private final byte[][] about; // what is to be known of each file, null: nothing
    private final String[] elsewhere; // the object with dead rows of each file, null: none
    private final boolean[] dead; // whether rows of it are
    private final FileStatusWithMetadata[] whole; // each file, to be read as a whole; null: its dead rows are not known yet

    /** before: the version of which what is other is sent, null: all files are. cached: whether executors keep the footers, and compare those that they read. */
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

    /** Reads the files from one position on. */
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

    /** Sets a file, of whose dead rows nothing is known yet but whether there are some. */
    private void begin(int at, FileStatus file, byte[] known, boolean hasDead) {
        files[at] = file;
        plain[at] = known;
        about[at] = known;
        dead[at] = hasDead;
        whole[at] = hasDead ? null : new FileStatusWithMetadata(file, Selection.metadata(known, null, null));
    }

    /** Leaves the files that stay to a later version. gone, changed: positions here, rising; nowDead: whether each of the changed ones has dead rows. */
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

    /** Returns those of the files whose dead rows are not known yet, rising. keep: positions in the list, null: all. */
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

    /** Keeps the dead rows of files that {@link #unknown} has named, or where these stand. */
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
            if (whole[each] == null) { // else another query has asked, too
                byte[] where = numbers[i] < 0 ? null : ByteBuffer.allocate(Vectors.BYTES)
                        .putLong(offsets[i]).putInt(bytes[i]).putInt(crcs[i]).putInt(rows[i]).array();
                about[each] = Selection.withDead(about[each], where, bitmaps[i]);
                elsewhere[each] = numbers[i] < 0 ? null : objects[numbers[i]]; // which all of its files share
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

    /** Returns a file to be read, whose dead rows are known; wanted: the only positions that a query wants of it, null: all. */
    FileStatusWithMetadata file(int position, byte[] wanted) {
        if (whole[position] == null) {
            throw new IllegalStateException("dead rows of " + files[position].getPath() + " are not known");
        }
        return wanted == null ? whole[position]
                : new FileStatusWithMetadata(files[position], Selection.metadata(about[position], elsewhere[position], wanted));
    }
}
