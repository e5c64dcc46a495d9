// Gives the relations of ours that have no pin one. A relation is a leaf of a plan, LogicalRelation, around a description of
// files and columns, HadoopFsRelation, whose FileIndex names the files: only the latter is another one afterwards.
package mdt.spark;

import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

final class PinReplacement extends Replacement {
    private final Pin pin;

    PinReplacement(Pin pin) {
        this.pin = pin;
    }

    Object of(Object node) {
        MdtFileIndex index = MdtFileIndex.of(node);
        if (index == null || index.pin != null) {
            return null;
        }
        LogicalRelation old = (LogicalRelation) node;
        HadoopFsRelation files = (HadoopFsRelation) old.relation();
        HadoopFsRelation pinned = new HadoopFsRelation(index.pinned(pin), files.partitionSchema(),
                files.dataSchema(), files.bucketSpec(), files.fileFormat(), files.options(), files.sparkSession());
        return MeasuredRelation.with(old, pinned);
    }
}
