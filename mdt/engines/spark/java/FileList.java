// All files of one version of a table, in Spark's own form, decoded from the bytes that Python sends (their layout is
// described at the head of file_index.py). A version is sent once; later replies name it by its number. Which rows of a file are
// dead is asked for when a query reads it, and kept.
package mdt.spark;

import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;

final class FileList {
    private static final long BLOCK_BYTES = 128L << 20; // what Hadoop says of local files; Spark asks for no more
    private static final byte[] NONE = new byte[0];
    final long bytes; // of all files
    private final FileStatus[] files;
    private final int[][] about; // of each file: length and CRC-32 of the footer, version of the columns
    private final int[] hasDead; // of each file, 0: no row is dead
    private final byte[][] dead; // of each file, the bitmap of its dead positions; null: none, or not asked for yet

    /** cached: whether executors keep the footers, and compare those that they read. */
    FileList(ByteBuffer from, boolean cached) {
        int n = from.getInt();
        long[] sizes = Reply.longs(from, n);
        long[] offsets = Reply.longs(from, n);
        long[] fileBytes = Reply.longs(from, n);
        int[] footerBytes = Reply.ints(from, n);
        int[] footerCrcs = Reply.ints(from, n);
        int[] versions = Reply.ints(from, n);
        this.hasDead = Reply.ints(from, n);
        int[] uriEnds = Reply.ints(from, n);
        int uris = from.position() + from.arrayOffset();
        this.files = new FileStatus[n];
        this.about = new int[n][];
        this.dead = new byte[n][];
        long total = 0;
        for (int i = 0; i < n; i++) {
            int start = i == 0 ? 0 : uriEnds[i - 1];
            String uri = new String(from.array(), uris + start, uriEnds[i] - start, StandardCharsets.UTF_8);
            boolean far = cached && footerBytes[i] > 0;
            if (offsets[i] >= 0 || far) {
                uri = BlockFileSystem.path(uri, Math.max(0L, offsets[i]), sizes[i], fileBytes[i],
                        far ? footerBytes[i] : 0, footerCrcs[i]);
            }
            files[i] = new FileStatus(sizes[i], false, 1, BLOCK_BYTES, 0L, new Path(URI.create(uri)));
            about[i] = new int[] {far ? 0 : footerBytes[i], footerCrcs[i], versions[i]};
            total += sizes[i];
        }
        this.bytes = total;
    }

    /** Returns those of the files whose dead rows are not known yet. keep: positions in the list, null: all. */
    synchronized List unknown(int[] keep) {
        List found = new ArrayList();
        for (int i = 0; i < (keep == null ? files.length : keep.length); i++) {
            int each = keep == null ? i : keep[i];
            if (hasDead[each] != 0 && dead[each] == null) {
                found.add(Integer.valueOf(each));
            }
        }
        return found;
    }

    /** Keeps the dead rows of files. */
    synchronized void know(List which, byte[][] bitmaps) {
        for (int i = 0; i < bitmaps.length; i++) {
            dead[((Integer) which.get(i)).intValue()] = bitmaps[i];
        }
    }

    int count() {
        return files.length;
    }

    Path path(int position) {
        return files[position].getPath();
    }

    /** Returns a file to be read; wanted: the only positions that a query wants of it, null: all. */
    synchronized FileStatusWithMetadata file(int position, byte[] wanted) {
        byte[] gone = dead[position];
        if (hasDead[position] != 0 && gone == null) {
            throw new IllegalStateException("dead rows of " + files[position].getPath() + " are not known");
        }
        int[] of = about[position];
        byte[] told = Selection.about(of[0], of[1], of[2], gone == null ? NONE : gone);
        return new FileStatusWithMetadata(files[position], Selection.metadata(told, wanted));
    }
}
