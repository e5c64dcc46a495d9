// The driver's information about a file: bytes in the metadata of its FileStatusWithMetadata, which Spark sends with
// its splits. Integers are big-endian. Bitmaps are Roaring bitmaps in the portable format of Python.
package mdt.spark;

import java.nio.ByteBuffer;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.roaringbitmap.RoaringBitmap;
import scala.collection.immutable.Map;

final class Selection {
    private static final String ABOUT = "mdt"; // length and CRC-32 of the footer, version; the location of deleted positions in another object; a bitmap of others
    private static final String ELSEWHERE = "mdt_vectors"; // the object that contains them
    private static final String WANTED = "mdt_wanted"; // bitmap of the candidate positions of the query
    private static final int ABOUT_BYTES = 12;
    private static final int FEW = 8; // single rows are compared with the deleted positions if at most one row in this many is a candidate
    private static final byte[] NOTHING = new byte[0];
    private static final byte[] PLAIN = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1}; // no footer to verify, the newest version
    final int version; // of the columns, -1 for the newest
    final RoaringBitmap dead; // null: none
    final RoaringBitmap candidates; // null: all
    private final int footerBytes; // 0: not verified
    private final int footerCrc;

    private Selection(ByteBuffer about, byte[] chosen, String vectorObject, Vectors vectors) {
        this.footerBytes = about.getInt();
        this.footerCrc = about.getInt();
        this.version = about.getInt();
        RoaringBitmap deleted = vectorObject == null ? null : vectors.read(vectorObject, about);
        RoaringBitmap ownDead = about.hasRemaining() ? Vectors.bitmap(about, null, 0L) : null;
        // a new bitmap, because other readers share the one of the object
        deleted = deleted == null ? ownDead : ownDead == null ? deleted : RoaringBitmap.or(deleted, ownDead);
        RoaringBitmap candidates = chosen.length > 0 ? Vectors.bitmap(ByteBuffer.wrap(chosen), null, 0L) : null;
        if (deleted != null && candidates != null && (candidates.isEmpty() || candidates.getLongCardinality() * FEW <= candidates.last())) {
            candidates.andNot(deleted);
            deleted = null;
        }
        this.dead = deleted;
        this.candidates = candidates;
    }

    /** Driver: returns the bytes for a file, or null for defaults. */
    static byte[] about(int footerBytes, int footerCrc, int version) {
        if (footerBytes == 0 && version < 0) {
            return null;
        }
        return ByteBuffer.allocate(ABOUT_BYTES).putInt(footerBytes).putInt(footerCrc).putInt(version).array();
    }

    /**
     * Driver: returns the bytes for a file with deleted rows. where: location of a bitmap in another object; dead: a
     * further bitmap, or null.
     */
    static byte[] withDead(byte[] about, byte[] where, byte[] dead) {
        ByteBuffer bytes = ByteBuffer.allocate(ABOUT_BYTES + (where == null ? 0 : where.length) + (dead == null ? 0 : dead.length));
        bytes.put(about == null ? PLAIN : about).put(where == null ? NOTHING : where).put(dead == null ? NOTHING : dead);
        return bytes.array();
    }

    /** Driver: returns the metadata of a file. vectorObject: the object with its deleted positions, or null. */
    static Map metadata(byte[] about, String vectorObject, byte[] candidates) {
        Map metadata = about == null ? Scala.none() : Scala.with(Scala.none(), ABOUT, about);
        metadata = vectorObject == null ? metadata : Scala.with(metadata, ELSEWHERE, vectorObject);
        return candidates == null ? metadata : Scala.with(metadata, WANTED, candidates);
    }

    /**
     * Executor: returns the driver's information about the file of a split. vectors: reads bitmaps in other objects.
     */
    static Selection of(PartitionedFile file, Vectors vectors) {
        Map metadata = file.otherConstantMetadataColumnValues();
        byte[] about = metadata.contains(ABOUT) ? (byte[]) metadata.apply(ABOUT) : PLAIN;
        byte[] candidates = metadata.contains(WANTED) ? (byte[]) metadata.apply(WANTED) : NOTHING;
        String vectorObject = metadata.contains(ELSEWHERE) ? (String) metadata.apply(ELSEWHERE) : null;
        return new Selection(ByteBuffer.wrap(about), candidates, vectorObject, vectors);
    }

    boolean isAll() {
        return dead == null && candidates == null;
    }

    /** Returns true if the row at a position is to be returned. */
    boolean keeps(int position) {
        return (dead == null || !dead.contains(position)) && (candidates == null || candidates.contains(position));
    }

    /** Fails if the footer that Spark uses differs from the written footer. */
    void checkFooter(PartitionedFile file) {
        if (footerBytes > 0) {
            Footers.check(file, footerBytes, footerCrc);
        }
    }
}
