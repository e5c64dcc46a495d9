// All files of one version of a table, in Spark's own form, decoded from the bytes that Python sends (their layout is
// described at the head of file_index.py). A version is sent once; later replies name it by its number.
package mdt.spark;

import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;

final class FileList {
    private static final long BLOCK_BYTES = 128L << 20; // what Hadoop says of local files; Spark asks for no more
    final FileStatusWithMetadata[] files;
    final int[] numbers; // of the files, as Python counts them
    final long bytes; // of all files

    FileList(ByteBuffer from) {
        int n = from.getInt();
        long[] sizes = Reply.longs(from, n);
        long[] times = Reply.longs(from, n);
        this.numbers = Reply.ints(from, n);
        int[] ends = Reply.ints(from, n);
        this.files = new FileStatusWithMetadata[n];
        int uris = from.position() + from.arrayOffset();
        int start = 0;
        long total = 0;
        for (int i = 0; i < n; i++) {
            String uri = new String(from.array(), uris + start, ends[i] - start, StandardCharsets.UTF_8);
            FileStatus status = new FileStatus(sizes[i], false, 1, BLOCK_BYTES, times[i], new Path(URI.create(uri)));
            // The second argument, metadata of the file, has a default in Scala; this is how Java spells that.
            files[i] = new FileStatusWithMetadata(status, FileStatusWithMetadata.$lessinit$greater$default$2());
            total += sizes[i];
            start = ends[i];
        }
        this.bytes = total;
        from.position(from.position() + start);
    }
}
