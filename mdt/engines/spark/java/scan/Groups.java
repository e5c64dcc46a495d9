// Stands between Spark's reader of a split and the row groups that it takes from Parquet. The reader asks for one row group after the
// other (readNextRowGroup) and cuts each into batches. The type that it asks is private to Spark's package, so this is not a class of that
// type but the handler of a Proxy, which has any interface at run time.
package mdt.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import org.apache.parquet.column.page.PageReadStore;

abstract class Groups implements InvocationHandler {
    private Object behind;
    private Method next; // of what stands behind

    /** Puts itself before what a reader takes its row groups from now. */
    final void before(Object reader) {
        behind = Internals.groups(reader);
        Class type = Internals.typeOfGroups();
        Internals.setGroups(reader, Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, this));
    }

    /** Returns the next row group that the reader gets, null behind the last. */
    abstract PageReadStore next() throws Throwable;

    /** Returns the next row group of what stands behind, null behind the last. */
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
            return method.invoke(behind, arguments);
        } catch (InvocationTargetException failure) {
            throw failure.getCause();
        }
    }
}
