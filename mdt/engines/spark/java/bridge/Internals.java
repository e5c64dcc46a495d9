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
import scala.collection.immutable.Seq;

final class Internals {
    private static final Class READER = VectorizedParquetRecordReader.class.getSuperclass();

    private Internals() {}

    /** Fails with the name of what this release lacks. */
    static void probe() throws Exception {
        field(RecordReaderIterator.class, "rowReader");
        field(READER, "totalRowCount");
        field(READER, "parquetColumn");
        field(ParquetColumn.class, "descriptor");
        if (!typeOfGroups().isInterface()) {
            throw new NoSuchFieldException(typeOfGroups().getName() + " is no interface");
        }
        field(Class.forName(typeOfGroups().getName() + "Impl", false, READER.getClassLoader()), "reader");
        rowRanges();
        field(ParquetFileReader.class, "options");
        field(CodecFactory.class, "decompressors");
        dynamicPruning(null, null, Scala.seq(new Object[0]), 0);
        field(PythonProxyHandler.class, "gateway");
    }

    /** Returns the reader of a split behind the iterator that Spark's format returns, null if it reads no batches. */
    static Object reader(Object iterator) {
        return get(RecordReaderIterator.class, "rowReader", iterator);
    }

    /** Returns what a reader takes its row groups from. */
    static Object groups(Object reader) {
        return get(READER, "reader", reader);
    }

    static void setGroups(Object reader, Object groups) {
        set(READER, "reader", reader, groups);
    }

    static Class typeOfGroups() {
        return field(READER, "reader").getType();
    }

    /** Tells a reader how many rows it will find. */
    static void setRows(Object reader, long rows) {
        set(READER, "totalRowCount", reader, Long.valueOf(rows));
    }

    /** Returns Parquet's own reader of the file of a split, by the iterator that Spark's format returns, before anything stands between. */
    static ParquetFileReader file(Object iterator) {
        Object groups = groups(reader(iterator));
        return (ParquetFileReader) get(groups.getClass(), "reader", groups);
    }

    /** Returns by which decompressors Parquet's reader of a file reads pages, each by the name of its codec; to be changed. */
    static Map decompressors(ParquetFileReader file) {
        ParquetReadOptions options = (ParquetReadOptions) get(ParquetFileReader.class, "options", file);
        return (Map) get(CodecFactory.class, "decompressors", options.getCodecFactory());
    }

    /** Returns what a reader knows of the columns that it is to read, a record of them. */
    static ParquetColumn columns(Object reader) {
        return (ParquetColumn) get(READER, "parquetColumn", reader);
    }

    /** Tells a reader that has not begun yet how one of its columns is stored. */
    static void setDescriptor(ParquetColumn column, ColumnDescriptor told) {
        set(ParquetColumn.class, "descriptor", column, Option.apply(told));
    }

    /** Returns the rows of a row group that Parquet's page index leaves; asked only where it leaves fewer than all. */
    static RowRanges rowRanges(ParquetFileReader file, int rowGroup) {
        try {
            return (RowRanges) rowRanges().invoke(file, new Object[] {Integer.valueOf(rowGroup)});
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException("rows of a row group cannot be chosen: " + failure.getCause(), failure);
        }
    }

    private static Method rowRanges() throws ReflectiveOperationException {
        Method found = ParquetFileReader.class.getDeclaredMethod("getRowRanges", new Class[] {int.class});
        found.setAccessible(true);
        return found;
    }

    /** Returns the rules of one kind ("postHocResolutionRules") that an analyzer of Spark has. */
    static List rules(Analyzer analyzer, String kind) {
        return Scala.list((Seq) get(analyzer.getClass(), kind, analyzer));
    }

    /** Gives an analyzer another list of rules: Spark takes them when it makes a session, and ours may be there already. */
    static void setRules(Analyzer analyzer, String kind, List rules) {
        set(analyzer.getClass(), kind, analyzer, Scala.seq(rules));
    }

    /**
     * Returns the condition that a key has one of the values that a plan has of the key with a number of its keys. It holds for all
     * values unless a join broadcasts the plan. Its constructor has one argument more since Spark 4.3.
     */
    static Expression dynamicPruning(Expression key, LogicalPlan plan, Seq keys, int number) {
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
            throw other(DynamicPruningSubquery.class, moved);
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
            throw other(InsertIntoStatement.class, moved);
        }
    }

    /** Returns by what a function of Python's is called, null for one of Java's. */
    static Py4JPythonClient client(Object function) {
        if (!Proxy.isProxyClass(function.getClass())) {
            return null;
        }
        return ((Gateway) get(PythonProxyHandler.class, "gateway", Proxy.getInvocationHandler(function))).getCallbackClient();
    }

    private static Object get(Class of, String name, Object object) {
        try {
            return field(of, name).get(object);
        } catch (IllegalAccessException closed) {
            throw other(of, closed);
        }
    }

    private static void set(Class of, String name, Object object, Object value) {
        try {
            field(of, name).set(object, value);
        } catch (IllegalAccessException closed) {
            throw other(of, closed);
        }
    }

    /** Returns a field of a class, or of one above it. */
    private static Field field(Class of, String name) {
        for (Class each = of; each != null; each = each.getSuperclass()) {
            try {
                Field found = each.getDeclaredField(name);
                found.setAccessible(true);
                return found;
            } catch (NoSuchFieldException elsewhere) {
                continue; // of a class above
            }
        }
        throw other(of, new NoSuchFieldException(name));
    }

    private static RuntimeException other(Class of, Exception moved) {
        return new UnsupportedOperationException("this release of Spark has another " + of.getName() + ": " + moved);
    }
}
