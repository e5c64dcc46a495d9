// The files that a scan must read: all or some files of a version, and all or some rows of each.
package mdt.spark;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

final class Answer {
    final Figures figures; // null: not requested
    final int number; // of the version
    private final FileList version;
    private final int[] keep; // positions in the list; null: all
    private final byte[][] wanted; // bitmaps of the candidate rows of each kept file; null: all rows

    Answer(int number, FileList version, int[] keep, byte[][] wanted, Figures figures) {
        this.number = number;
        this.version = version;
        this.keep = keep;
        this.wanted = wanted;
        this.figures = figures;
    }

    /** Reads count bitmaps: the length of each, -1 for none, then the bitmaps. */
    static byte[][] bitmaps(ByteBuffer from, int count) {
        int[] lengths = Reply.ints(from, count);
        byte[][] found = new byte[count][];
        for (int i = 0; i < count; i++) {
            if (lengths[i] >= 0) {
                found[i] = new byte[lengths[i]];
                from.get(found[i]);
            }
        }
        return found;
    }

    boolean hasDead() {
        return version.hasDead;
    }

    int count() {
        return keep == null ? version.count() : keep.length;
    }

    /** Returns the paths of the files. */
    List paths() {
        List paths = new ArrayList(count());
        for (int i = 0; i < count(); i++) {
            paths.add(version.path(keep == null ? i : keep[i]));
        }
        return paths;
    }

    /** Returns the files whose deleted rows must be requested. */
    List unknown() {
        return version.unknown(keep);
    }

    /** Stores the deleted rows of files returned by {@link #unknown}. */
    void know(List which, ByteBuffer reply) {
        version.know(which, reply);
    }

    /** Returns the files in Spark's form. Their deleted rows must be known. */
    List files() {
        List files = new ArrayList(count());
        for (int i = 0; i < count(); i++) {
            files.add(version.file(keep == null ? i : keep[i], wanted == null ? null : wanted[i]));
        }
        return files;
    }
}
