// The files that a scan must read: all or some files of a version, and all or some rows of each.
package mdt.spark;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

final class Answer {
    final Figures figures; // null: not requested
    final int number; // of the version
    private final FileList version;
    private final int[] selected; // positions in the list; null: all
    private final byte[][] candidates; // bitmaps of the candidate rows of each selected file; null: all rows

    Answer(int number, FileList version, int[] selected, byte[][] candidates, Figures figures) {
        this.number = number;
        this.version = version;
        this.selected = selected;
        this.candidates = candidates;
        this.figures = figures;
    }

    /** Reads count bitmaps: the length of each, -1 for none, then the bitmaps. */
    static byte[][] bitmaps(ByteBuffer bytes, int count) {
        int[] lengths = Reply.ints(bytes, count);
        byte[][] bitmaps = new byte[count][];
        for (int i = 0; i < count; i++) {
            if (lengths[i] >= 0) {
                bitmaps[i] = new byte[lengths[i]];
                bytes.get(bitmaps[i]);
            }
        }
        return bitmaps;
    }

    boolean hasDead() {
        return version.hasDead;
    }

    int count() {
        return selected == null ? version.count() : selected.length;
    }

    /** Returns the paths of the files. */
    List paths() {
        List paths = new ArrayList(count());
        for (int i = 0; i < count(); i++) {
            paths.add(version.path(selected == null ? i : selected[i]));
        }
        return paths;
    }

    /** Returns the files whose deleted rows must be requested. */
    List unknown() {
        return version.unknown(selected);
    }

    /** Stores the deleted rows of files returned by {@link #unknown}. */
    void know(List positions, ByteBuffer reply) {
        version.know(positions, reply);
    }

    /** Returns the files in Spark's form. Their deleted rows must be known. */
    List files() {
        List files = new ArrayList(count());
        for (int i = 0; i < count(); i++) {
            files.add(version.file(selected == null ? i : selected[i], candidates == null ? null : candidates[i]));
        }
        return files;
    }
}
