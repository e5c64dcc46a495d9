// Calls of functions that Python has handed over. Py4J gives each thread of the JVM that calls Python a connection of its own, with a socket on
// both sides and a thread of Python's at its other end, and keeps it when the thread has ended. Threads that plan queries do end (each
// toArrow() has one), so the connections of those that have are ended here, when another thread calls for the first time.
package mdt.spark;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.function.Function;
import py4j.ClientServerConnection;
import py4j.Py4JPythonClient;
import py4j.Py4JPythonClientPerThread;

final class Calls {
    private static final Map connections = new HashMap(); // thread -> its connection

    private Calls() {}

    /** Returns what a function of Python's returns. */
    static Object call(Function function, Object request) {
        try {
            return function.apply(request);
        } finally {
            remember(function);
        }
    }

    private static void remember(Function function) {
        Py4JPythonClient client = Internals.client(function);
        if (!(client instanceof Py4JPythonClientPerThread)) {
            return; // threads share connections (PYSPARK_PIN_THREAD=false)
        }
        ClientServerConnection mine = ((Py4JPythonClientPerThread) client).getPerThreadConnection();
        if (mine == null || !mine.isInitiatedFromClient()) {
            return; // Python has made it: one of its threads waits for this one
        }
        synchronized (connections) {
            if (connections.put(Thread.currentThread(), mine) == mine) {
                return;
            }
            for (Iterator each = connections.entrySet().iterator(); each.hasNext();) {
                Map.Entry one = (Map.Entry) each.next();
                if (!((Thread) one.getKey()).isAlive()) {
                    each.remove();
                    Internals.end((ClientServerConnection) one.getValue(), client);
                }
            }
        }
    }
}
