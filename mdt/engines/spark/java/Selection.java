// What the driver says of one file besides its name: bytes in the metadata of its FileStatusWithMetadata, which Spark sends with
// the splits of the file. Integers are big-endian; bitmaps are Roaring bitmaps in the portable form that Python writes.
package mdt.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.roaringbitmap.RoaringBitmap;

final class Selection {
    private static final String ABOUT = "mdt"; // length and CRC-32 of the footer, version, then the bitmap of dead positions
    private static final String WANTED = "mdt_wanted"; // the bitmap of the positions that may match the query's conditions
    private static final int ABOUT_BYTES = 12;
    private static final int FEW = 8; // single rows are told from the dead ones at once if at most one of so many is wanted
    private static final byte[] NOTHING = new byte[0];
    private static final byte[] PLAIN = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1}; // no footer to compare, the newest version
    final int version; // of the columns, -1: the newest
    final RoaringBitmap dead; // null: none
    final RoaringBitmap wanted; // null: all
    private final int footerBytes; // 0: not compared
    private final int footerCrc;

    private Selection(ByteBuffer about, byte[] chosen) {
        this.footerBytes = about.getInt();
        this.footerCrc = about.getInt();
        this.version = about.getInt();
        RoaringBitmap gone = about.hasRemaining() ? bitmap(about) : null;
        RoaringBitmap kept = chosen.length > 0 ? bitmap(ByteBuffer.wrap(chosen)) : null;
        if (gone != null && kept != null && (kept.isEmpty() || kept.getLongCardinality() * FEW <= kept.last())) {
            kept.andNot(gone);
            gone = null;
        }
        this.dead = gone;
        this.wanted = kept;
    }

    /** Driver: returns the bytes for a file, null where there is nothing to say. */
    static byte[] about(int footerBytes, int footerCrc, int version) {
        if (footerBytes == 0 && version < 0) {
            return null;
        }
        return ByteBuffer.allocate(ABOUT_BYTES).putInt(footerBytes).putInt(footerCrc).putInt(version).array();
    }

    /** Driver: returns the bytes for a file with dead rows. dead: their bitmap. */
    static byte[] withDead(byte[] about, byte[] dead) {
        ByteBuffer to = ByteBuffer.allocate(ABOUT_BYTES + dead.length);
        return to.put(about == null ? PLAIN : about).put(dead).array();
    }

    /** Driver: returns the metadata of a file. */
    static scala.collection.immutable.Map metadata(byte[] about, byte[] wanted) {
        Object none = scala.collection.immutable.Map$.MODULE$.empty();
        scala.collection.immutable.Map found = (scala.collection.immutable.Map) none;
        if (about != null) {
            found = (scala.collection.immutable.Map) found.updated(ABOUT, about);
        }
        return wanted == null ? found : (scala.collection.immutable.Map) found.updated(WANTED, wanted);
    }

    /** Executor: returns what the driver has said of the file of a split. */
    static Selection of(PartitionedFile file) {
        scala.collection.immutable.Map told = file.otherConstantMetadataColumnValues();
        byte[] about = told.contains(ABOUT) ? (byte[]) told.apply(ABOUT) : PLAIN;
        byte[] wanted = told.contains(WANTED) ? (byte[]) told.apply(WANTED) : NOTHING;
        return new Selection(ByteBuffer.wrap(about), wanted);
    }

    private static RoaringBitmap bitmap(ByteBuffer from) {
        RoaringBitmap found = new RoaringBitmap();
        try {
            found.deserialize(from);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        return found;
    }

    boolean isAll() {
        return dead == null && wanted == null;
    }

    /** Returns whether the row at a position is to be returned. */
    boolean keeps(int position) {
        return (dead == null || !dead.contains(position)) && (wanted == null || wanted.contains(position));
    }

    /** Fails unless the footer of the file, which Spark believes, is as it was written. */
    void checkFooter(PartitionedFile file) {
        if (footerBytes > 0) {
            Footers.check(file, footerBytes, footerCrc);
        }
    }
}
