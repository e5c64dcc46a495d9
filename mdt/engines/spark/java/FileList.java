// All files of one version of a table, in Spark's own form, decoded from the bytes that Python sends (their layout is
// described at the head of file_index.py). A version is sent once; later replies name it by its number.
package mdt.spark;

import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;

final class FileList {
    private static final long BLOCK_BYTES = 128L << 20; // what Hadoop says of local files; Spark asks for no more
    final long bytes; // of all files
    private final FileStatusWithMetadata[] files;
    private final byte[][] about; // what is to be known of each file, null: nothing

    /** cached: whether executors keep the footers, and compare those that they read. */
    FileList(ByteBuffer from, boolean cached) {
        int n = from.getInt();
        long[] sizes = Reply.longs(from, n);
        long[] offsets = Reply.longs(from, n);
        long[] fileBytes = Reply.longs(from, n);
        int[] footerBytes = Reply.ints(from, n);
        int[] footerCrcs = Reply.ints(from, n);
        int[] versions = Reply.ints(from, n);
        int[] uriEnds = Reply.ints(from, n);
        int[] deadEnds = Reply.ints(from, n);
        int uris = from.position() + from.arrayOffset();
        int dead = uris + (n == 0 ? 0 : uriEnds[n - 1]);
        this.files = new FileStatusWithMetadata[n];
        this.about = new byte[n][];
        long total = 0;
        for (int i = 0; i < n; i++) {
            int start = i == 0 ? 0 : uriEnds[i - 1];
            String uri = new String(from.array(), uris + start, uriEnds[i] - start, StandardCharsets.UTF_8);
            boolean far = cached && footerBytes[i] > 0;
            if (offsets[i] >= 0 || far) {
                uri = BlockFileSystem.path(uri, Math.max(0L, offsets[i]), sizes[i], fileBytes[i],
                        far ? footerBytes[i] : 0, footerCrcs[i]);
            }
            FileStatus status = new FileStatus(sizes[i], false, 1, BLOCK_BYTES, 0L, new Path(URI.create(uri)));
            int deadStart = i == 0 ? 0 : deadEnds[i - 1];
            byte[] positions = Arrays.copyOfRange(from.array(), dead + deadStart, dead + deadEnds[i]);
            about[i] = Selection.about(far ? 0 : footerBytes[i], footerCrcs[i], versions[i], positions);
            files[i] = new FileStatusWithMetadata(status, Selection.metadata(about[i], null));
            total += sizes[i];
        }
        this.bytes = total;
        from.position(dead - from.arrayOffset() + (n == 0 ? 0 : deadEnds[n - 1]));
    }

    int count() {
        return files.length;
    }

    /** Returns a file; wanted: the only positions that a query wants of it, null: all. */
    FileStatusWithMetadata file(int position, byte[] wanted) {
        FileStatusWithMetadata whole = files[position];
        if (wanted == null) {
            return whole;
        }
        return new FileStatusWithMetadata(whole.fileStatus(), Selection.metadata(about[position], wanted));
    }
}
