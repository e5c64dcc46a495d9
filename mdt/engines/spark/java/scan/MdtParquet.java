// Spark's own Parquet reader, without deleted rows and rows that an index excluded. In the driver, Spark asks a
// FileFormat once per scan for a function. Executors call it with each split (a file or a part of one) and get an
// iterator of rows. Ours is LiveReader, which calls the function of Spark's format and processes its result:
//
//     driver                                       executors, for each split
//       MdtFileIndex.listFiles                       LiveReader.apply
//         a file's metadata                ----->      Selection     deleted and candidate positions, footer CRC, version
//         (FileStatusWithMetadata.metadata)            Vectors       deleted positions in the table's metadata
//                                                      RowGroups     reads only row groups and pages with candidates (Skipping)
//                                                      PageDecompressor  decompresses pages
//                                                      DecimalPages  converts decimals to integers
//       MdtParquet                                     LiveBatches   removes deleted rows from batches of columns
//         a function of Spark for each     ----->      Conversion    converts the columns of an older file to the newest
//         version of the table's columns             BlockFileSystem  presents a block in a log file as a file
//       Affinity                                       FarStream      remote stores: footers from the executor's memory
//         an executor for each file        ----->        Recent
//
// Shipment.java ships the classes in a JAR. An accelerator that replaces Spark's Parquet reader would bypass all this
// and return deleted rows. Python refuses sessions that have one.
package mdt.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Map;
import scala.runtime.AbstractFunction1;

public class MdtParquet extends ParquetFileFormat {
    static final String POSITION = "_tmp_metadata_row_index"; // Spark's reader fills a column of this name with row numbers
    private static final String BATCHES = "returning_batch"; // true if the scan takes batches of columns, false for rows
    final transient Forms forms; // for the driver: executors get the Conversion of each version
    private final transient FileSource source;

    MdtParquet(Forms forms, FileSource source) {
        this.forms = forms;
        this.source = source;
    }

    /** Equal formats let Spark reuse the result of a scan. */
    public boolean equals(Object other) {
        return other instanceof MdtParquet && ((MdtParquet) other).forms.equals(forms);
    }

    public int hashCode() {
        return forms.hashCode();
    }

    /** Spark compiles its loops for any kind of column, because some of ours are wrapped. */
    public Option vectorTypes(StructType required, StructType partitions, SQLConf conf) {
        return Option.empty();
    }

    /** Values of the hidden column _metadata. For a block they describe its log file. */
    public Map fileConstantMetadataExtractors() {
        Map extractors = super.fileConstantMetadataExtractors();
        for (String field : RealFile.FIELDS) {
            extractors = Scala.with(extractors, field, new RealFile(field));
        }
        return extractors;
    }

    /** Spark uses these settings to read files. */
    public SQLConf getSqlConf(SparkSession session) {
        return Pinned.conf(((org.apache.spark.sql.classic.SparkSession) session).sessionState().conf());
    }

    /**
     * required: the columns of the query; filters: conditions that Parquet may use, and that the query evaluates again.
     */
    public Function1 buildReaderWithPartitionValues(SparkSession session, StructType data, StructType partitions,
            StructType required, scala.collection.immutable.Seq filters, Map options,
            Configuration conf) {
        BlockFileSystem.install(conf);
        conf.setLong(BlockFileSystem.FOOTERS, source.footerBytes);
        conf.set("parquet.page.verify-checksum.enabled", "true");
        if (!Skipping.IS_RIGHT) {
            conf.set("parquet.filter.columnindex.enabled", "false"); // it would skip rows inside pages
        }
        if (holdsFloats(data)) {
            // Parquet's own filter compares the bits of 0.0 with dictionaries and skips row groups with -0.0. New files
            // have no dictionaries of floats, but older files and files of other writers may.
            conf.set("parquet.filter.dictionary.enabled", "false");
        }
        Option batchesOption = options.get(BATCHES);
        boolean batches = batchesOption.isDefined() && "true".equals(batchesOption.get());
        boolean vectorized = ParquetUtils.isBatchReadSupportedForSchema(
                ((org.apache.spark.sql.classic.SparkSession) session).sessionState().conf(), required);
        Map inner = Pinned.reader(vectorized ? Scala.with(options, BATCHES, "true") : options);
        LiveReader reader = new LiveReader(vectorized, batches, required);
        reader.vectors = source.vectors(conf);
        reader.counters = TableScan.counters();
        reader.newest = super.buildReaderWithPartitionValues(
                session, data, partitions, vectorized ? required : numbered(required), filters, inner,
                new Configuration(conf));
        reader.conversions = forms.of(required);
        reader.older = new Function1[reader.conversions.length];
        for (int i = 0; i < reader.older.length; i++) {
            if (reader.conversions[i] != null) {
                StructType stored = (StructType) reader.conversions[i].stored; // old names may belong to other columns now: no filter
                reader.older[i] = super.buildReaderWithPartitionValues(session, stored, partitions,
                        vectorized ? stored : numbered(stored), Scala.seq(), inner, new Configuration(conf)); // it stores the names of the columns that are read
            }
        }
        return reader;
    }

    /** Returns true if a type contains floating-point numbers. */
    private static boolean holdsFloats(DataType type) {
        return type.existsRecursively(new AbstractFunction1() {
            public Object apply(Object each) {
                return JsonValue.isFloating((DataType) each);
            }
        });
    }

    /** Returns the columns including the column of row numbers, which is appended if it is missing. */
    static StructType numbered(StructType columns) {
        return columns.getFieldIndex(POSITION).isDefined() ? columns : columns.add(POSITION, DataTypes.LongType);
    }
}
