// Scala's collections in Java's words. Spark's methods take and return scala.collection.immutable.Seq; our code loops over
// java.util.List. Neither direction copies.
package mdt.spark;

import java.util.List;
import scala.jdk.javaapi.CollectionConverters;

final class Scala {
    private Scala() {}

    /** Returns an immutable Seq of these values; the array must not be changed afterwards. */
    static scala.collection.immutable.Seq seq(Object[] values) {
        return scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(values);
    }

    static scala.collection.immutable.Seq seq(List values) {
        return seq(values.toArray());
    }

    /** Returns a map without entries. */
    static scala.collection.immutable.Map none() {
        return scala.collection.immutable.Map$.MODULE$.empty();
    }

    /** Returns a view of a Seq. */
    static List list(scala.collection.immutable.Seq values) {
        return CollectionConverters.asJava((scala.collection.Seq) values);
    }
}
