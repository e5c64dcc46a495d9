// Calls of Python functions. Py4J gives each JVM thread that calls Python a permanent connection: two sockets and a
// thread in Python. Spark plans queries on hundreds of short-lived threads (one per toArrow()), and Py4J never closes
// the connections of ended threads. A thread without a connection therefore borrows one for a call, and there are only
// as many connections as concurrent calls.
package mdt.spark;

import java.util.ArrayDeque;
import java.util.function.Function;
import py4j.ClientServerConnection;
import py4j.Py4JPythonClient;
import py4j.Py4JPythonClientPerThread;

final class Calls {
    private static final ArrayDeque idle = new ArrayDeque(); // connections, last used first

    private Calls() {}

    /** Calls a Python function and returns its result. */
    static Object call(Function function, Object request) {
        Py4JPythonClient client = Internals.client(function);
        if (!(client instanceof Py4JPythonClientPerThread)) {
            return function.apply(request); // threads share connections (PYSPARK_PIN_THREAD=false)
        }
        Py4JPythonClientPerThread threads = (Py4JPythonClientPerThread) client;
        if (works(threads.getPerThreadConnection())) {
            return function.apply(request); // a Python thread waits at the other end: Python called first, or this is a nested call
        }
        threads.setPerThreadConnection(taken());
        boolean answered = false;
        try {
            Object answer = function.apply(request);
            answered = true;
            return answer;
        } catch (RuntimeException failure) { // an error that Python returned
            answered = true;
            throw failure;
        } finally {
            give(threads.getPerThreadConnection(), answered);
            threads.setPerThreadConnection(null);
        }
    }

    /** Returns an idle connection, or null to let Py4J create one. */
    private static ClientServerConnection taken() {
        synchronized (idle) {
            ClientServerConnection connection = (ClientServerConnection) idle.poll();
            while (connection != null && !works(connection)) {
                connection = (ClientServerConnection) idle.poll();
            }
            return connection;
        }
    }

    /** Returns a connection to the pool. Closes it if the answer may still arrive (out of memory, stack overflow). */
    private static void give(ClientServerConnection connection, boolean answered) {
        if (!works(connection)) {
            return;
        }
        if (!answered) {
            connection.shutdown();
            return;
        }
        synchronized (idle) {
            idle.push(connection);
        }
    }

    /** Returns true if there is a connection without an error. */
    private static boolean works(ClientServerConnection connection) {
        return connection != null && connection.getSocket() != null;
    }
}
