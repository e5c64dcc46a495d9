// A layer between Spark's reader of a split and Parquet's row groups. The reader requests one row group after another
// (readNextRowGroup) and cuts each into batches. Its type of the source is private to Spark's package. This class is
// therefore not an implementation but the handler of a Proxy, which implements any interface at run time.
package mdt.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import org.apache.parquet.column.page.PageReadStore;

abstract class Groups implements InvocationHandler {
    private Object delegate;
    private Method next; // of the wrapped source

    /** Inserts itself before a reader's current source of row groups. */
    final void before(Object reader) {
        delegate = Internals.groups(reader);
        Class type = Internals.typeOfGroups();
        Internals.setGroups(reader, Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, this));
    }

    /** Returns the next row group for the reader, or null at the end. */
    abstract PageReadStore next() throws Throwable;

    /** Returns the next row group of the wrapped source, or null at the end. */
    final PageReadStore behind() throws Throwable {
        return (PageReadStore) called(next, null);
    }

    public final Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        if (!method.getName().equals("readNextRowGroup")) {
            return called(method, arguments);
        }
        next = method;
        return next();
    }

    private Object called(Method method, Object[] arguments) throws Throwable {
        method.setAccessible(true);
        try {
            return method.invoke(delegate, arguments);
        } catch (InvocationTargetException failure) {
            throw failure.getCause();
        }
    }
}
