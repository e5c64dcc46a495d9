// A table in Spark's catalog and format("mdt"): the relation of files that Factory creates, with support for INSERT.
package mdt.spark;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;

final class MdtRelation extends HadoopFsRelation implements InsertableRelation {
    /**
     * columns: those of the files, perhaps with comments; options: as passed by Spark, including the path. Python has
     * parsed them.
     */
    MdtRelation(HadoopFsRelation files, StructType columns, Map options) {
        super(files.location(), files.partitionSchema(), columns, files.bucketSpec(), files.fileFormat(),
                Pinned.relation(options), files.sparkSession());
    }

    /** INSERT INTO and INSERT OVERWRITE. Spark has converted the rows to the table's columns. */
    public void insert(Dataset rows, boolean overwrite) {
        Python.write(sparkSession(), options(), overwrite ? "overwrite" : "into", rows);
    }

    /**
     * Spark caches the relations of catalog tables and copies them for a query with other options, as SELECT … FROM t
     * WITH (as_of = '3'). Such options change the rows, so the table is opened again. The options of Pinned, which the
     * catalog does not have, are ignored.
     */
    public HadoopFsRelation copy(FileIndex location, StructType partitions, StructType columns, Option buckets,
            FileFormat format, Map options, SparkSession session) {
        Map pinned = Pinned.relation(options);
        if (pinned.equals(options())) {
            return new MdtRelation(
                    new HadoopFsRelation(location, partitions, columns, buckets, format, pinned, session), columns, options);
        }
        return (HadoopFsRelation) MdtSource.relation(session, options, columns); // Python refuses unknown options
    }
}
