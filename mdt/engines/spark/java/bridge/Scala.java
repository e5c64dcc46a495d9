// Scala's collections in Java's words. Spark's methods take and return scala.collection.immutable.Seq; our code loops over
// java.util.List. Neither direction copies. And its records.
package mdt.spark;

import java.lang.reflect.Method;
import java.util.List;
import scala.Option;
import scala.Product;
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

    /** Returns whether a field of a record of Scala's is a true flag or an Option with a value; false for a field that this release lacks. */
    static boolean isSet(Product record, String field) {
        for (int i = 0; i < record.productArity(); i++) {
            if (field.equals(record.productElementName(i))) {
                Object value = record.productElement(i);
                return value instanceof Option ? ((Option) value).isDefined() : Boolean.TRUE.equals(value);
            }
        }
        return false;
    }

    /** Returns a copy of a record of Scala's (a case class) with another value in one field: releases differ in the other fields. */
    static Product copied(Product record, String field, Object value) {
        Object[] values = new Object[record.productArity()];
        for (int i = 0; i < values.length; i++) {
            values[i] = field.equals(record.productElementName(i)) ? value : record.productElement(i);
        }
        Method[] methods = record.getClass().getMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().equals("copy") && methods[i].getParameterTypes().length == values.length) {
                try {
                    return (Product) methods[i].invoke(record, values);
                } catch (ReflectiveOperationException failure) {
                    throw new IllegalStateException(failure);
                }
            }
        }
        throw new IllegalStateException(record.getClass().getName() + " has no method copy");
    }
}
