// A field of the hidden column _metadata, of a file or of the log file that contains a block. Spark calls it with a
// PartitionedFile.
package mdt.spark;

import java.io.Serializable;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import scala.runtime.AbstractFunction1;

final class RealFile extends AbstractFunction1 implements Serializable {
    static final String[] FIELDS = {"file_path", "file_name", "file_size", "file_block_start"};
    private final String field;

    RealFile(String field) {
        this.field = field;
    }

    public Object apply(Object split) {
        PartitionedFile file = (PartitionedFile) split;
        Path path = file.toPath();
        boolean block = BlockFileSystem.isBlock(path);
        if (field.equals("file_size")) {
            return block ? BlockFileSystem.fileBytes(path) : file.fileSize();
        }
        if (field.equals("file_block_start")) {
            return file.start() + (block ? BlockFileSystem.offset(path) : 0);
        }
        String uri = block ? BlockFileSystem.file(path).toUri().toString() : file.urlEncodedPath();
        return field.equals("file_path") ? uri : uri.substring(uri.lastIndexOf('/') + 1);
    }
}
