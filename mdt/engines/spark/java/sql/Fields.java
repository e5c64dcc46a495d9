// The fields of any statement's Spark plan as values for JSON:
//
//     a column name                  the list of its parts
//     FIRST, AFTER c                 [], ["c"]
//     a type                         the JSON of a schema with the single field "of"
//     a plan                         the name of its class, because its table is already known
//     case class, Seq, Map, Option   by name; a list; by name; a value or null
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.FieldName;
import org.apache.spark.sql.catalyst.analysis.FieldPosition;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;

final class Fields {
    private final PartitionValues partitions;

    /** partitions: converts maps as values of partition columns; null if maps are options. */
    Fields(PartitionValues partitions) {
        this.partitions = partitions;
    }

    Map of(Product record) {
        Map values = new LinkedHashMap();
        for (int i = 0; i < record.productArity(); i++) {
            values.put(record.productElementName(i), value(record.productElement(i)));
        }
        return values;
    }

    private Object value(Object field) {
        if (field == null || field instanceof Boolean || field instanceof Number) {
            return field;
        }
        if (field instanceof FieldName) {
            return Scala.list(((FieldName) field).name());
        }
        if (field instanceof FieldPosition) {
            TableChange.ColumnPosition place = ((FieldPosition) field).position();
            return place instanceof TableChange.After
                    ? Arrays.asList(((TableChange.After) place).column()) : Collections.EMPTY_LIST;
        }
        if (field instanceof DataType) {
            return new StructType().add("of", (DataType) field).json();
        }
        if (field instanceof LogicalPlan) {
            return field.getClass().getSimpleName();
        }
        if (field instanceof scala.collection.immutable.Map) {
            Map spec = Scala.map((scala.collection.immutable.Map) field);
            return partitions == null ? spec : partitions.texts(partitions.named(spec));
        }
        if (field instanceof Option) {
            return ((Option) field).isDefined() ? value(((Option) field).get()) : null;
        }
        if (field instanceof Seq) {
            List values = new ArrayList();
            for (Object element : Scala.list((Seq) field)) {
                values.add(value(element));
            }
            return values;
        }
        return field instanceof Product ? (Object) of((Product) field) : field.toString();
    }
}
