// Spark's own Parquet reader, less the rows that are dead or that no index chose. A FileFormat is asked, in the driver and once
// for each scan, for a function that goes to the executors and there makes of each file (or a part of one, a split) an iterator
// over its rows. Ours is LiveReader; it calls the function of Spark's format and works on what that returns:
//
//     driver                                       executors, for each split
//       MdtFileIndex.listFiles                       LiveReader.apply
//         what is to be known of a file    ----->      Selection     dead and wanted positions, the footer's checksum, the version
//         (FileStatusWithMetadata.metadata)            Vectors       dead positions where they stand in the table's metadata
//                                                      RowGroups     reads only row groups and pages with wanted rows (Skipping)
//                                                      PageDecompressor  decompresses pages
//                                                      DecimalPages  makes integers of decimals
//       MdtParquet                                     LiveBatches   takes dead rows out of batches of columns
//         one function of Spark's for each  ----->      Form          makes the newest columns of those of an older file
//         version of the table's columns             BlockFileSystem  lets a block inside a log file be a file
//       Affinity                                       FarStream      of far stores: footers from the executor's memory
//         an executor for each file        ----->        Recent
//
// The classes get there in a JAR that Shipment.java makes. Accelerators that replace Spark's Parquet reader would leave all this
// out, and return dead rows: Python refuses sessions that have one.
package mdt.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.LongType$;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Map;

public class MdtParquet extends ParquetFileFormat {
    static final String POSITION = "_tmp_metadata_row_index"; // Spark's reader fills a column of this name with row numbers
    private static final String BATCHES = "returning_batch"; // whether the scan takes batches of columns, or rows
    final transient Forms forms; // for the driver: executors get the Form of each version
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

    /** Spark compiles its loops for any kind of column: some of ours are wrapped. */
    public Option vectorTypes(StructType required, StructType partitions, SQLConf conf) {
        return Option.empty();
    }

    /** What the hidden column _metadata says of a file: of a block, the log file that it stands in. */
    public Map fileConstantMetadataExtractors() {
        Map all = super.fileConstantMetadataExtractors();
        for (int i = 0; i < RealFile.FIELDS.length; i++) {
            all = Scala.with(all, RealFile.FIELDS[i], new RealFile(RealFile.FIELDS[i]));
        }
        return all;
    }

    /** Spark asks for the settings by which files are read. */
    public SQLConf getSqlConf(SparkSession session) {
        return Pinned.conf(((org.apache.spark.sql.classic.SparkSession) session).sessionState().conf());
    }

    /** required: the columns of the query; filters: what Parquet may test by itself, and the query tests again. */
    public Function1 buildReaderWithPartitionValues(SparkSession session, StructType data, StructType partitions,
            StructType required, scala.collection.immutable.Seq filters, Map options,
            Configuration conf) {
        BlockFileSystem.install(conf);
        conf.setLong(BlockFileSystem.FOOTERS, source.footerBytes);
        conf.set("parquet.page.verify-checksum.enabled", "true");
        if (!Skipping.IS_RIGHT) {
            conf.set("parquet.filter.columnindex.enabled", "false"); // which would skip rows inside pages
        }
        if (holdsFloats(data)) {
            // Parquet's own filter looks for the bits of 0.0 in dictionaries and skips row groups of -0.0. Files
            // that we write now have no dictionary of floats; older ones, and those of others, may.
            conf.set("parquet.filter.dictionary.enabled", "false");
        }
        Option asked = options.get(BATCHES);
        boolean batches = asked.isDefined() && "true".equals(asked.get());
        boolean vectorized = ParquetUtils.isBatchReadSupportedForSchema(
                ((org.apache.spark.sql.classic.SparkSession) session).sessionState().conf(), required);
        Map inner = Pinned.reader(vectorized ? Scala.with(options, BATCHES, "true") : options);
        LiveReader reader = new LiveReader(vectorized, batches, required);
        reader.vectors = source.vectors(conf);
        reader.counters = TableScan.counters();
        reader.newest = super.buildReaderWithPartitionValues(
                session, data, partitions, vectorized ? required : numbered(required), filters, inner,
                new Configuration(conf));
        reader.forms = forms.of(required);
        reader.older = new Function1[reader.forms.length];
        for (int i = 0; i < reader.forms.length; i++) {
            if (reader.forms[i] != null) {
                StructType stored = reader.forms[i].stored; // whose names may be those of other columns now: no filter
                reader.older[i] = super.buildReaderWithPartitionValues(session, stored, partitions,
                        vectorized ? stored : numbered(stored), Scala.seq(new Object[0]), inner,
                        new Configuration(conf)); // which keeps the names of the columns that are read
            }
        }
        return reader;
    }

    /** Returns whether floating point numbers occur anywhere in a type. */
    private static boolean holdsFloats(DataType type) {
        if (type instanceof ArrayType) {
            return holdsFloats(((ArrayType) type).elementType());
        }
        if (type instanceof MapType) {
            return holdsFloats(((MapType) type).keyType()) || holdsFloats(((MapType) type).valueType());
        }
        if (type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            for (int i = 0; i < fields.length; i++) {
                if (holdsFloats(fields[i].dataType())) {
                    return true;
                }
            }
            return false;
        }
        return type instanceof FloatType || type instanceof DoubleType;
    }

    /** Returns the columns with the one of row numbers, last if it is not among them. */
    static StructType numbered(StructType columns) {
        if (position(columns) < columns.length()) {
            return columns;
        }
        return columns.add(new StructField(POSITION, LongType$.MODULE$, true, Metadata.empty()));
    }

    /** Returns where the column of row numbers stands, the number of columns if it is none of them. */
    static int position(StructType columns) {
        String[] names = columns.fieldNames();
        for (int i = 0; i < names.length; i++) {
            if (names[i].equals(POSITION)) {
                return i;
            }
        }
        return names.length;
    }
}
