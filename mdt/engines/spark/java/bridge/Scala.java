// Conversion between Scala's collections and case classes, which Spark uses, and java.util collections, which our code
// uses. No conversion of a collection copies it.
package mdt.spark;

import java.lang.reflect.Method;
import java.util.List;
import scala.Option;
import scala.Product;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

final class Scala {
    private Scala() {}

    /** Returns an immutable Seq of these values. The array must not be changed afterwards. */
    static Seq seq(Object... values) {
        return ArraySeq$.MODULE$.unsafeWrapArray(values);
    }

    static Seq seq(List values) {
        return seq(values.toArray());
    }

    /** Returns an empty map. */
    static Map none() {
        return Map$.MODULE$.empty();
    }

    /** Returns a copy of a Java map. */
    static Map map(java.util.Map values) {
        return (Map) Map$.MODULE$.from(CollectionConverters.asScala(values));
    }

    /** Returns a map with a changed or added entry. */
    static Map with(Map map, Object name, Object value) {
        Object updated = map.updated(name, value); // Janino accepts none of Scala's types for it
        return (Map) updated;
    }

    static Map without(Map map, Object name) {
        Object left = map.removed(name);
        return (Map) left;
    }

    /** Returns a view of a Seq. */
    static List list(Seq values) {
        return CollectionConverters.asJava((scala.collection.Seq) values);
    }

    /** Returns a view of a Map. */
    static java.util.Map map(Map values) {
        return CollectionConverters.asJava((scala.collection.Map) values);
    }

    /** Returns a field of a case class, or null if this release lacks it. */
    static Object field(Product record, String field) {
        for (int i = 0; i < record.productArity(); i++) {
            if (field.equals(record.productElementName(i))) {
                return record.productElement(i);
            }
        }
        return null;
    }

    /** Returns true if a field of a case class is true, or an Option with a value. */
    static boolean isSet(Product record, String field) {
        Object value = field(record, field);
        return value instanceof Option ? ((Option) value).isDefined() : Boolean.TRUE.equals(value);
    }

    /** Returns a copy of a case class with another value in one field. Releases differ in the other fields. */
    static Product copied(Product record, String field, Object value) {
        Object[] values = new Object[record.productArity()];
        for (int i = 0; i < values.length; i++) {
            values[i] = field.equals(record.productElementName(i)) ? value : record.productElement(i);
        }
        for (Method method : record.getClass().getMethods()) {
            if (method.getName().equals("copy") && method.getParameterTypes().length == values.length) {
                try {
                    return (Product) method.invoke(record, values);
                } catch (ReflectiveOperationException failure) {
                    throw new IllegalStateException(failure);
                }
            }
        }
        throw new IllegalStateException(record.getClass().getName() + " has no method copy");
    }
}
