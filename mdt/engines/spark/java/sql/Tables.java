// Tables of mdt in Spark's own catalog, by name.
package mdt.spark;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils$;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;
import scala.collection.immutable.Map;

final class Tables {
    private static final String CATALOG = "spark_catalog";

    private Tables() {}

    /** Returns true if a provider is mdt. */
    static boolean isOurs(Option provider) {
        return provider.isDefined() && MdtSource.NAME.equalsIgnoreCase((String) provider.get());
    }

    /** Returns an mdt table without options of the machine, or null if there is none of that name. */
    static CatalogTable named(SparkSession session, TableIdentifier name) {
        return own(session, entry(session, name));
    }

    private static CatalogTable entry(SparkSession session, TableIdentifier name) {
        try {
            CatalogTable table = session.sessionState().catalog().getTempViewOrPermanentTableMetadata(name);
            return isOurs(table.provider()) ? table : null;
        } catch (Exception unknown) { // Scala methods do not declare their exceptions
            return null;
        }
    }

    /** Returns a table, or null for null, without the options of the machine in its catalog entry. */
    static CatalogTable own(SparkSession session, CatalogTable table) {
        if (table == null) {
            return null;
        }
        Map left = table.storage().properties();
        String[] machineOptions = ofMachine(session, table.identifier().unquotedString(), table);
        for (String option : machineOptions) {
            left = Scala.without(left, option);
        }
        return machineOptions.length == 0 ? table : with(table, left);
    }

    /** Returns a table with other options. */
    static CatalogTable with(CatalogTable table, Map options) {
        return (CatalogTable) Scala.copied(table, "storage", Scala.copied(table.storage(), "properties", options));
    }

    /** Refuses a new table with options of the machine in its entry. */
    static void check(SparkSession session, CatalogTable table) {
        ofMachine(session, null, table);
    }

    /**
     * Returns the options of the machine in an entry. name: of the table, or null for a new table, for which they are
     * refused.
     */
    private static String[] ofMachine(SparkSession session, String name, CatalogTable table) {
        List names = options(table.storage().properties());
        return names.isEmpty() ? new String[0] : Python.texts(Python.ask("entry", session, null, name, names.toArray()));
    }

    /** Returns the names that are options of mdt or Hudi. */
    private static List options(Map options) {
        List names = new ArrayList();
        for (Object item : Scala.map(options).keySet()) {
            String name = (String) item;
            String word = name.toLowerCase(Locale.ROOT);
            if (word.startsWith("mdt.") || word.startsWith("hoodie.")) {
                names.add(name);
            }
        }
        return names;
    }

    static AliasIdentifier alias(CatalogTable table) {
        TableIdentifier name = table.identifier();
        return new AliasIdentifier(name.table(), Scala.seq(name.catalog().get(), name.database().get()));
    }

    /** As above, for the parts of a name in a query. */
    static CatalogTable named(SparkSession session, List parts) {
        return own(session, entry(session, parts));
    }

    /** Returns an mdt table as the catalog has it, or null if there is none of that name. */
    static CatalogTable entry(SparkSession session, List parts) {
        int size = parts.size();
        if (size == 3 ? !CATALOG.equalsIgnoreCase((String) parts.get(0))
                : size > 3 || !CATALOG.equals(session.sessionState().catalogManager().currentCatalog().name())) {
            return null;
        }
        String name = (String) parts.get(size - 1);
        boolean isByPath = "true".equals(session.conf().get("spark.sql.path.enabled", "false")); // SET PATH: other databases may have precedence
        if (size == 1 && (isByPath || session.sessionState().catalog().getTempView(name).isDefined())) {
            return null;
        }
        Option database = size == 1 ? Option.empty() : Option.apply(parts.get(size - 2));
        return entry(session, new TableIdentifier(name, database));
    }

    /** Returns the options with which Spark would read the table. */
    static Map options(CatalogTable table) {
        Map options = table.storage().properties();
        return table.storage().locationUri().isEmpty() ? options
                : Scala.with(options, "path", CatalogUtils$.MODULE$.URIToString((URI) table.storage().locationUri().get()));
    }

    /** As above, for a name as text. Null if the text is not a name. */
    static CatalogTable named(SparkSession session, String text) {
        try {
            return named(session, Scala.list(session.sessionState().sqlParser().parseMultipartIdentifier(text)));
        } catch (Exception isNoName) {
            return null;
        }
    }

    /** Returns the column that a statement names by the session's case rules, or the given name if there is none. */
    static String column(SparkSession session, List columns, String name) {
        for (Object column : columns) {
            if ((Boolean) session.sessionState().conf().resolver().apply(column, name)) {
                return (String) column;
            }
        }
        return name;
    }

    /** Returns the options of a catalog table by name, or of a table by path. */
    static Map options(SparkSession session, String text) {
        CatalogTable table = named(session, text);
        if (table != null) {
            return options(table);
        }
        if (text.indexOf('/') < 0) {
            throw new Invalid("there is no mdt table " + text + " in the catalog; a path must contain a slash");
        }
        return Scala.with(Scala.none(), "path", text);
    }
}
