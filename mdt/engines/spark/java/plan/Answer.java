// The files that one scan must read: some or all of one version's, and of each all rows or some.
package mdt.spark;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

final class Answer {
    final Figures figures; // null: not asked for
    final int number; // of the version
    private final FileList version;
    private final int[] keep; // positions in the list; null: all
    private final byte[][] wanted; // of each that is kept, the only rows that may match: a bitmap; null: any

    Answer(int number, FileList version, int[] keep, byte[][] wanted, Figures figures) {
        this.number = number;
        this.version = version;
        this.keep = keep;
        this.wanted = wanted;
        this.figures = figures;
    }

    /** Reads bitmaps of so many files: the length of each, -1 for none, then the bitmaps. */
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

    /** Returns those of the files whose dead rows are to be asked for. */
    List unknown() {
        return version.unknown(keep);
    }

    /** Keeps the dead rows of files that {@link #unknown} has named. */
    void know(List which, ByteBuffer reply) {
        version.know(which, reply);
    }

    /** Returns the files in Spark's form, after their dead rows are known. */
    List files() {
        List files = new ArrayList(count());
        for (int i = 0; i < count(); i++) {
            files.add(version.file(keep == null ? i : keep[i], wanted == null ? null : wanted[i]));
        }
        return files;
    }
}
