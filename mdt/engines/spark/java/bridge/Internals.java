// All private members of Spark, Parquet and Py4J that mdt uses, by reflection. probe() reports a member that a release
// has moved when the first frame is created, and not in the middle of a query.
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

    /** Fails with the name of a member that this release lacks. */
    static void probe() throws Exception {
        field(RecordReaderIterator.class, "rowReader");
        field(READER, "totalRowCount");
        field(READER, "parquetColumn");
        field(ParquetColumn.class, "descriptor");
        if (!typeOfGroups().isInterface()) {
            throw new NoSuchFieldException(typeOfGroups().getName() + " is not an interface");
        }
        field(Class.forName(typeOfGroups().getName() + "Impl", false, READER.getClassLoader()), "reader");
        rowRanges();
        field(ParquetFileReader.class, "options");
        field(CodecFactory.class, "decompressors");
        dynamicPruning(null, null, Scala.seq(), 0);
        field(PythonProxyHandler.class, "gateway");
    }

    /** Returns the reader of a split behind the iterator of Spark's format, or null if it does not read batches. */
    static Object reader(Object iterator) {
        return get(RecordReaderIterator.class, "rowReader", iterator);
    }

    /** Returns a reader's source of row groups. */
    static Object groups(Object reader) {
        return get(READER, "reader", reader);
    }

    static void setGroups(Object reader, Object groups) {
        set(READER, "reader", reader, groups);
    }

    static Class typeOfGroups() {
        return field(READER, "reader").getType();
    }

    /** Sets the number of rows that a reader will return. */
    static void setRows(Object reader, long rows) {
        set(READER, "totalRowCount", reader, rows);
    }

    /**
     * Returns Parquet's reader for the file of a split, from the iterator of Spark's format. Call it before any Groups
     * is added.
     */
    static ParquetFileReader file(Object iterator) {
        Object groups = groups(reader(iterator));
        return (ParquetFileReader) get(groups.getClass(), "reader", groups);
    }

    /** Returns the mutable map of codec name -> decompressor of a Parquet reader. */
    static Map decompressors(ParquetFileReader file) {
        ParquetReadOptions options = (ParquetReadOptions) get(ParquetFileReader.class, "options", file);
        return (Map) get(CodecFactory.class, "decompressors", options.getCodecFactory());
    }

    /** Returns a reader's record of the columns to read. */
    static ParquetColumn columns(Object reader) {
        return (ParquetColumn) get(READER, "parquetColumn", reader);
    }

    /** Sets the storage type of a column in a reader that has not started. */
    static void setDescriptor(ParquetColumn column, ColumnDescriptor descriptor) {
        set(ParquetColumn.class, "descriptor", column, Option.apply(descriptor));
    }

    /**
     * Returns the rows of a row group that remain after Parquet's page index. Only called if they are fewer than all.
     */
    static RowRanges rowRanges(ParquetFileReader file, int rowGroup) {
        try {
            return (RowRanges) rowRanges().invoke(file, rowGroup);
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException("rows of a row group cannot be chosen: " + failure.getCause(), failure);
        }
    }

    private static Method rowRanges() throws ReflectiveOperationException {
        Method method = ParquetFileReader.class.getDeclaredMethod("getRowRanges", int.class);
        method.setAccessible(true);
        return method;
    }

    /** Returns a list of an analyzer's rules, such as "postHocResolutionRules". */
    static List rules(Analyzer analyzer, String kind) {
        return Scala.list((Seq) get(analyzer.getClass(), kind, analyzer));
    }

    /**
     * Replaces a list of an analyzer's rules. Spark sets them when it creates a session, and ours may be among them.
     */
    static void setRules(Analyzer analyzer, String kind, List rules) {
        set(analyzer.getClass(), kind, analyzer, Scala.seq(rules));
    }

    /**
     * Returns the condition that a key is among the plan's values of the key with this number. It is true for all
     * values unless a join broadcasts the plan. The constructor has another argument since Spark 4.3.
     */
    static Expression dynamicPruning(Expression key, LogicalPlan plan, Seq keys, int number) {
        try {
            Constructor constructor = DynamicPruningSubquery.class.getConstructors()[0];
            Object[] arguments = new Object[constructor.getParameterCount()];
            Arrays.fill(arguments, Option.empty());
            arguments[0] = key;
            arguments[1] = plan;
            arguments[2] = keys;
            arguments[3] = Scala.seq(number);
            arguments[4] = true;
            arguments[5] = NamedExpression$.MODULE$.newExprId();
            return (Expression) constructor.newInstance(arguments);
        } catch (ReflectiveOperationException failure) {
            throw other(DynamicPruningSubquery.class, failure);
        }
    }

    /** Returns INSERT INTO or INSERT OVERWRITE of a query into a table. There are more arguments since Spark 4.1. */
    static LogicalPlan insert(LogicalPlan table, LogicalPlan query, boolean overwrite, boolean byName) {
        try {
            Constructor constructor = InsertIntoStatement.class.getConstructors()[0];
            Object[] leading = {table, Scala.none(), Scala.seq(), query, overwrite, false, byName};
            Object[] arguments = Arrays.copyOf(leading, constructor.getParameterCount());
            for (int i = leading.length; i < arguments.length; i++) {
                arguments[i] = constructor.getParameterTypes()[i] == boolean.class ? (Object) Boolean.FALSE : Option.empty();
            }
            return (LogicalPlan) constructor.newInstance(arguments);
        } catch (ReflectiveOperationException failure) {
            throw other(InsertIntoStatement.class, failure);
        }
    }

    /** Returns the client that calls a Python function, or null for a Java function. */
    static Py4JPythonClient client(Object function) {
        if (!Proxy.isProxyClass(function.getClass())) {
            return null;
        }
        return ((Gateway) get(PythonProxyHandler.class, "gateway", Proxy.getInvocationHandler(function))).getCallbackClient();
    }

    private static Object get(Class owner, String name, Object object) {
        try {
            return field(owner, name).get(object);
        } catch (IllegalAccessException closed) {
            throw other(owner, closed);
        }
    }

    private static void set(Class owner, String name, Object object, Object value) {
        try {
            field(owner, name).set(object, value);
        } catch (IllegalAccessException closed) {
            throw other(owner, closed);
        }
    }

    /** Returns a field of a class or of its superclasses. */
    private static Field field(Class owner, String name) {
        for (Class each = owner; each != null; each = each.getSuperclass()) {
            try {
                Field field = each.getDeclaredField(name);
                field.setAccessible(true);
                return field;
            } catch (NoSuchFieldException inherited) {
                continue; // declared in a superclass
            }
        }
        throw other(owner, new NoSuchFieldException(name));
    }

    private static RuntimeException other(Class owner, Exception failure) {
        return new UnsupportedOperationException("this release of Spark has a different " + owner.getName() + ": " + failure);
    }
}
