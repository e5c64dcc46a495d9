// A table as Spark's catalog and format("mdt") have it: the relation of files that Factory makes, to which SQL may write.
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
    /** columns: those of the files, perhaps with comments; options: those that Spark knows of this relation, among them the path; Python has read them. */
    MdtRelation(HadoopFsRelation files, StructType columns, Map options) {
        super(files.location(), files.partitionSchema(), columns, files.bucketSpec(), files.fileFormat(),
                Pinned.relation(options), files.sparkSession());
    }

    /** INSERT INTO and INSERT OVERWRITE. Spark has given the rows the table's columns. */
    public void insert(Dataset rows, boolean overwrite) {
        Python.write(sparkSession(), options(), overwrite ? "overwrite" : "into", rows);
    }

    /**
     * Spark keeps the relations of tables of its catalog, and copies them for a query whose options are others, as
     * SELECT … FROM t WITH (as_of = '3'). Such options say which rows there are, so the table is opened anew. Those of Pinned, which
     * the catalog does not have, say nothing.
     */
    public HadoopFsRelation copy(FileIndex location, StructType partitions, StructType columns, Option buckets,
            FileFormat format, Map options, SparkSession session) {
        Map pinned = Pinned.relation(options);
        if (pinned.equals(options())) {
            return new MdtRelation(
                    new HadoopFsRelation(location, partitions, columns, buckets, format, pinned, session), columns, options);
        }
        return (HadoopFsRelation) MdtSource.relation(session, options, columns); // Python refuses what is none
    }
}
