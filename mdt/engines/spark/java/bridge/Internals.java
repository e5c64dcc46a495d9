// What is touched of Spark, Parquet and Py4J that their authors did not make public, by reflection, and nowhere else. A release that
// has moved something is told when the first frame is made (probe), not in the middle of a query.
package mdt.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.hadoop.CodecFactory;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.internal.filter2.columnindex.RowRanges;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.RecordReaderIterator;
import org.apache.spark.sql.execution.datasources.parquet.ParquetColumn;
import org.apache.spark.sql.execution.datasources.parquet.VectorizedParquetRecordReader;
import py4j.Gateway;
import py4j.Py4JPythonClient;
import py4j.reflection.PythonProxyHandler;
import scala.Option;

final class Internals {
    private static final Class READER = VectorizedParquetRecordReader.class.getSuperclass();

    private Internals() {}

    /** Fails with the name of what this release lacks. */
    static void probe() throws Exception {
        field(RecordReaderIterator.class, "rowReader");
        Class groups = field(READER, "reader").getType();
        field(READER, "totalRowCount");
        field(READER, "parquetColumn");
        field(ParquetColumn.class, "descriptor");
        if (!groups.isInterface()) {
            throw new NoSuchFieldException(groups.getName() + " is no interface");
        }
        field(Class.forName(groups.getName() + "Impl", false, READER.getClassLoader()), "reader");
        rowRanges();
        field(ParquetFileReader.class, "options");
        field(CodecFactory.class, "decompressors");
        dynamicPruning(null, null, Scala.seq(new Object[0]), 0);
        field(PythonProxyHandler.class, "gateway");
    }

    /** Returns the reader of a split behind the iterator that Spark's format returns, null if it reads no batches. */
    static Object reader(Object iterator) throws Exception {
        return field(RecordReaderIterator.class, "rowReader").get(iterator);
    }

    /** Returns what a reader takes its row groups from. */
    static Object groups(Object reader) throws Exception {
        return field(READER, "reader").get(reader);
    }

    static void setGroups(Object reader, Object groups) throws Exception {
        field(READER, "reader").set(reader, groups);
    }

    static Class typeOfGroups() throws Exception {
        return field(READER, "reader").getType();
    }

    /** Tells a reader how many rows it will find. */
    static void setRows(Object reader, long rows) throws Exception {
        field(READER, "totalRowCount").setLong(reader, rows);
    }

    /** Returns Parquet's own reader of the file of a split, by the iterator that Spark's format returns, before anything stands between. */
    static ParquetFileReader file(Object iterator) {
        try {
            Object groups = groups(reader(iterator));
            return (ParquetFileReader) field(groups.getClass(), "reader").get(groups);
        } catch (Exception moved) {
            throw new UnsupportedOperationException("this release of Spark has other readers of Parquet: " + moved);
        }
    }

    /** Returns by which decompressors Parquet's reader of a file reads pages, each by the name of its codec; to be changed. */
    static Map decompressors(ParquetFileReader file) {
        try {
            ParquetReadOptions options = (ParquetReadOptions) field(ParquetFileReader.class, "options").get(file);
            return (Map) field(CodecFactory.class, "decompressors").get(options.getCodecFactory());
        } catch (Exception moved) {
            throw new UnsupportedOperationException("this release of Parquet has other decompressors: " + moved);
        }
    }

    /** Returns what a reader knows of the columns that it is to read, a record of them. */
    static ParquetColumn columns(Object reader) throws Exception {
        return (ParquetColumn) field(READER, "parquetColumn").get(reader);
    }

    /** Tells a reader that has not begun yet how one of its columns is stored. */
    static void setDescriptor(ParquetColumn column, ColumnDescriptor told) throws Exception {
        field(ParquetColumn.class, "descriptor").set(column, Option.apply(told));
    }

    /** Returns the rows of a row group that Parquet's page index leaves; asked only where it leaves fewer than all. */
    static RowRanges rowRanges(ParquetFileReader file, int rowGroup) throws Exception {
        return (RowRanges) rowRanges().invoke(file, new Object[] {Integer.valueOf(rowGroup)});
    }

    private static Method rowRanges() throws Exception {
        Method found = ParquetFileReader.class.getDeclaredMethod("getRowRanges", new Class[] {int.class});
        found.setAccessible(true);
        return found;
    }

    /** Returns the rules of one kind ("postHocResolutionRules") that an analyzer of Spark has. */
    static List rules(Analyzer analyzer, String kind) throws Exception {
        return Scala.list((scala.collection.immutable.Seq) rulesField(analyzer, kind).get(analyzer));
    }

    /** Gives an analyzer another list of rules: Spark takes them when it makes a session, and ours may be there already. */
    static void setRules(Analyzer analyzer, String kind, List rules) throws Exception {
        rulesField(analyzer, kind).set(analyzer, Scala.seq(rules));
    }

    private static Field rulesField(Analyzer analyzer, String kind) throws Exception {
        for (Class each = analyzer.getClass(); each != null; each = each.getSuperclass()) {
            try {
                return field(each, kind);
            } catch (NoSuchFieldException elsewhere) {
                continue; // of a class above
            }
        }
        throw new NoSuchFieldException(kind);
    }

    /**
     * Returns the condition that a key has one of the values that a plan has of the key with a number of its keys. It holds for all
     * values unless a join broadcasts the plan. Its constructor has one argument more since Spark 4.3.
     */
    static Expression dynamicPruning(Expression key, LogicalPlan plan, scala.collection.immutable.Seq keys, int number) {
        try {
            Constructor made = DynamicPruningSubquery.class.getConstructors()[0];
            Object[] arguments = new Object[made.getParameterCount()];
            Arrays.fill(arguments, Option.empty());
            arguments[0] = key;
            arguments[1] = plan;
            arguments[2] = keys;
            arguments[3] = Scala.seq(new Object[] {Integer.valueOf(number)});
            arguments[4] = Boolean.TRUE;
            arguments[5] = NamedExpression$.MODULE$.newExprId();
            return (Expression) made.newInstance(arguments);
        } catch (ReflectiveOperationException moved) {
            throw new UnsupportedOperationException("this release of Spark has another DynamicPruningSubquery: " + moved);
        }
    }

    /** Returns INSERT INTO or OVERWRITE of a query into a table; releases since Spark 4.1 have arguments more. */
    static LogicalPlan insert(LogicalPlan table, LogicalPlan query, boolean overwrite, boolean byName) {
        try {
            Constructor made = InsertIntoStatement.class.getConstructors()[0];
            Object[] known = {table, Scala.none(), Scala.seq(new Object[0]), query, Boolean.valueOf(overwrite), Boolean.FALSE,
                Boolean.valueOf(byName)};
            Object[] arguments = Arrays.copyOf(known, made.getParameterCount());
            for (int i = known.length; i < arguments.length; i++) {
                arguments[i] = made.getParameterTypes()[i] == boolean.class ? (Object) Boolean.FALSE : Option.empty();
            }
            return (LogicalPlan) made.newInstance(arguments);
        } catch (ReflectiveOperationException moved) {
            throw new UnsupportedOperationException("this release of Spark has another InsertIntoStatement: " + moved);
        }
    }

    /** Returns by what a function of Python's is called, null for one of Java's. */
    static Py4JPythonClient client(Object function) {
        if (!Proxy.isProxyClass(function.getClass())) {
            return null;
        }
        try {
            return ((Gateway) field(PythonProxyHandler.class, "gateway").get(Proxy.getInvocationHandler(function))).getCallbackClient();
        } catch (Exception moved) {
            throw new UnsupportedOperationException("this release of Py4J has other functions: " + moved);
        }
    }

    private static Field field(Class of, String name) throws Exception {
        Field found = of.getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }
}
