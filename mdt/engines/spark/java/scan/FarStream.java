// The bytes of a block with a cached footer: the file is opened only when other bytes are read. Executors cache footers
// of files on remote stores, because Spark reads the footer for every split of every query. That takes two requests
// across the network before the first row.
package mdt.spark;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.IntFunction;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;

final class FarStream extends PartStream {
    private final Path block;
    private final Configuration conf;
    private final long footerAt;
    private byte[] footer; // null: not requested yet
    private BlockStream stream; // null: not opened yet

    FarStream(Path block, Configuration conf) {
        super(BlockFileSystem.bytes(block));
        this.block = block;
        this.conf = conf;
        this.footerAt = length - BlockFileSystem.footerBytes(block);
    }

    /** Opens a file of known length, so that the store is not asked for it, for Parquet's access pattern. */
    static FSDataInputStream opened(Path block, Configuration conf) throws IOException {
        Path file = BlockFileSystem.file(block);
        Object opening = file.getFileSystem(conf).openFile(file)
                .opt("fs.option.openfile.length", Long.toString(BlockFileSystem.fileBytes(block)))
                .opt("fs.option.openfile.read.policy", "parquet, vector, random, adaptive").build();
        try {
            return (FSDataInputStream) ((CompletableFuture) opening).get();
        } catch (ExecutionException failure) {
            throw failure.getCause() instanceof IOException ? (IOException) failure.getCause() : new IOException(failure);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new IOException(stopped);
        }
    }

    private BlockStream in() throws IOException {
        if (stream == null) {
            stream = new BlockStream(opened(block, conf), BlockFileSystem.offset(block), length);
        }
        return stream;
    }

    private byte[] footer() throws IOException {
        if (footer == null) {
            footer = (byte[]) Recent.FOOTERS.get(block.toString());
            Recent.FOOTERS.count(footer != null);
        }
        if (footer == null) {
            footer = Footers.read(block, new FSDataInputStream(in()), footerAt, (int) (length - footerAt), BlockFileSystem.footerCrc(block));
            Recent.FOOTERS.put(block.toString(), footer, footer.length, conf.getLong(BlockFileSystem.FOOTERS, 0L));
        }
        return footer;
    }

    public int read() throws IOException {
        byte[] each = new byte[1];
        return read(each, 0, 1) < 0 ? -1 : each[0] & 0xff;
    }

    public int read(byte[] buffer, int start, int count) throws IOException {
        int readBytes = read(at, buffer, start, count);
        at += Math.max(0, readBytes);
        return readBytes;
    }

    public int read(long position, byte[] buffer, int start, int count) throws IOException {
        if (count == 0) {
            return 0;
        }
        if (position >= length) {
            return -1;
        }
        if (position >= footerAt) {
            int footerPart = (int) Math.min((long) count, length - position);
            System.arraycopy(footer(), (int) (position - footerAt), buffer, start, footerPart);
            return footerPart;
        }
        if (in().getPos() != position) {
            in().seek(position);
        }
        return in().read(buffer, start, (int) Math.min((long) count, footerAt - position));
    }

    /** Reads several ranges at once, which is best for object stores. */
    public void readVectored(List ranges, IntFunction allocate) throws IOException {
        in().readVectored(ranges, allocate);
    }

    public void close() throws IOException {
        if (stream != null) {
            stream.close();
        }
    }
}
