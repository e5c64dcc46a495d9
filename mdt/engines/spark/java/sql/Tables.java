// Tables of ours in Spark's own catalog, by their names.
package mdt.spark;

import java.net.URI;
import java.util.List;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils$;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;

final class Tables {
    private static final String CATALOG = "spark_catalog";

    private Tables() {}

    static boolean isOurs(CatalogTable table) {
        return table.provider().isDefined() && MdtSource.NAME.equalsIgnoreCase((String) table.provider().get());
    }

    /** Returns a table of ours, null if there is none of that name. */
    static CatalogTable named(SparkSession session, TableIdentifier name) {
        try {
            CatalogTable found = session.sessionState().catalog().getTableMetadata(name);
            return isOurs(found) ? found : null;
        } catch (Exception unknown) { // Scala's methods do not declare what they throw
            return null;
        }
    }

    /** As above, for the parts of a name as a query has it. */
    static CatalogTable named(SparkSession session, List parts) {
        int size = parts.size();
        if (size == 3 ? !CATALOG.equalsIgnoreCase((String) parts.get(0))
                : size > 3 || !CATALOG.equals(session.sessionState().catalogManager().currentCatalog().name())) {
            return null;
        }
        String name = (String) parts.get(size - 1);
        boolean isByPath = "true".equals(session.conf().get("spark.sql.path.enabled", "false")); // SET PATH: other databases may come first
        if (size == 1 && (isByPath || session.sessionState().catalog().getTempView(name).isDefined())) {
            return null;
        }
        Option database = size == 1 ? Option.empty() : Option.apply(parts.get(size - 2));
        return named(session, new TableIdentifier(name, database));
    }

    /** Returns the options with which Spark would read it. */
    static scala.collection.immutable.Map options(CatalogTable table) {
        Object options = table.storage().properties();
        if (table.storage().locationUri().isDefined()) {
            String path = CatalogUtils$.MODULE$.URIToString((URI) table.storage().locationUri().get());
            options = table.storage().properties().updated("path", path);
        }
        return (scala.collection.immutable.Map) options;
    }

    /** As above, for a name as text; null, too, where the text is none. */
    static CatalogTable named(SparkSession session, String text) {
        try {
            return named(session, Scala.list(session.sessionState().sqlParser().parseMultipartIdentifier(text)));
        } catch (Exception isNoName) {
            return null;
        }
    }

    /** Returns that of some columns which a statement names in its own case, what it says if it is none of them. */
    static String column(SparkSession session, List columns, String said) {
        for (int i = 0; i < columns.size(); i++) {
            if (((Boolean) session.sessionState().conf().resolver().apply(columns.get(i), said)).booleanValue()) {
                return (String) columns.get(i);
            }
        }
        return said;
    }

    /** Returns the options of a table of the catalog by its name, else of one by its path. */
    static scala.collection.immutable.Map options(SparkSession session, String text) {
        CatalogTable found = named(session, text);
        if (found != null) {
            return options(found);
        }
        if (text.indexOf('/') < 0) {
            throw new Invalid("there is no table " + text + " of ours in the catalog; a path has a slash");
        }
        Object options = Scala.none().updated("path", text);
        return (scala.collection.immutable.Map) options;
    }
}
