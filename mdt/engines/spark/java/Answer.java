// The files that one scan must read: some or all of one version's, and perhaps others that stand for rows of the rest.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

final class Answer {
    private final FileList version;
    private final int[] keep; // positions in the list; null: all
    private final FileList others; // null: none

    Answer(FileList version, int[] keep, FileList others) {
        this.version = version;
        this.keep = keep;
        this.others = others;
    }

    int count() {
        return kept() + (others == null ? 0 : others.files.length);
    }

    private int kept() {
        return keep == null ? version.files.length : keep.length;
    }

    private int position(int i) {
        return keep == null ? i : keep[i];
    }

    List files() {
        List files = new ArrayList(count());
        for (int i = 0; i < kept(); i++) {
            files.add(version.files[position(i)]);
        }
        if (others != null) {
            files.addAll(Arrays.asList(others.files));
        }
        return files;
    }

    /** Returns lists of files by their number; the others have none, and no relation with numbers has others. */
    Map filesByNumber() {
        Map groups = new TreeMap();
        for (int i = 0; i < kept(); i++) {
            Integer number = Integer.valueOf(version.numbers[position(i)]);
            if (!groups.containsKey(number)) {
                groups.put(number, new ArrayList());
            }
            ((List) groups.get(number)).add(version.files[position(i)]);
        }
        return groups;
    }
}
