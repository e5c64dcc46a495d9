// Calls of functions that Python has handed over. Py4J gives each thread of the JVM that calls Python a connection for good: two sockets, and a thread of
// Python's at the other end. Spark plans queries on threads that come and go by the hundred (each toArrow() has one), and Py4J keeps the connections of
// those that have ended. So threads that have none are lent one for a call, and there are as many as calls at a time.
package mdt.spark;

import java.util.ArrayDeque;
import java.util.function.Function;
import py4j.ClientServerConnection;
import py4j.Py4JPythonClient;
import py4j.Py4JPythonClientPerThread;

final class Calls {
    private static final ArrayDeque idle = new ArrayDeque(); // connections, the one that was used last in front

    private Calls() {}

    /** Returns what a function of Python's returns. */
    static Object call(Function function, Object request) {
        Py4JPythonClient client = Internals.client(function);
        if (!(client instanceof Py4JPythonClientPerThread)) {
            return function.apply(request); // threads share connections anyhow (PYSPARK_PIN_THREAD=false)
        }
        Py4JPythonClientPerThread threads = (Py4JPythonClientPerThread) client;
        if (works(threads.getPerThreadConnection())) {
            return function.apply(request); // a thread of Python's waits at its other end: it called first, or this call is inside another one
        }
        threads.setPerThreadConnection(taken());
        boolean answered = false;
        try {
            Object answer = function.apply(request);
            answered = true;
            return answer;
        } catch (RuntimeException failure) { // of Python, which has answered so
            answered = true;
            throw failure;
        } finally {
            give(threads.getPerThreadConnection(), answered);
            threads.setPerThreadConnection(null);
        }
    }

    /** Returns a connection that nobody uses, null if there is none: Py4J makes one then. */
    private static ClientServerConnection taken() {
        synchronized (idle) {
            ClientServerConnection found = (ClientServerConnection) idle.poll();
            while (found != null && !works(found)) {
                found = (ClientServerConnection) idle.poll();
            }
            return found;
        }
    }

    /** Keeps a connection for the next call; ends one by which an answer may still come (out of memory, or of stack). */
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

    /** Returns whether there is a connection, and nothing has gone wrong with it. */
    private static boolean works(ClientServerConnection connection) {
        return connection != null && connection.getSocket() != null;
    }
}
