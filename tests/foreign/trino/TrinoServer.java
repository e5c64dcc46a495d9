// Trino in one process, with its connectors for Hudi and Iceberg, on an S3 whose endpoint, bucket, key and secret are
// the arguments. Reads a command in JSON from each line of its input, and answers with a line:
//   {"sql": query}: {"rows": [[value, ...], ...]}
//   {"table": {"name": ..., "location": ..., "columns": [[name, type], ...], "partitioned_by": [[name, type], ...],
//   "partitions": [{"name": ..., "location": ..., "values": [...]}, ...]}}: enters a table of Hudi; types are Hive's.
// An error is {"error": message}. Values are texts: floats are their bits in hexadecimal, bytes are in base 64. Structs
// are lists, maps are lists of pairs.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.trino.metastore.Column;
import io.trino.metastore.Database;
import io.trino.metastore.HiveMetastore;
import io.trino.metastore.HiveMetastoreFactory;
import io.trino.metastore.HiveType;
import io.trino.metastore.Partition;
import io.trino.metastore.PartitionStatistics;
import io.trino.metastore.PartitionWithStatistics;
import io.trino.metastore.PrincipalPrivileges;
import io.trino.metastore.Storage;
import io.trino.metastore.StorageFormat;
import io.trino.metastore.Table;
import io.trino.plugin.hudi.HudiConnector;
import io.trino.plugin.hudi.HudiPlugin;
import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.testing.MaterializedRow;
import io.trino.testing.StandaloneQueryRunner;
import io.trino.testing.TestingSession;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

public final class TrinoServer {
    private static final StorageFormat HUDI = StorageFormat.create(
            "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
            "org.apache.hudi.hadoop.HoodieParquetInputFormat",
            "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat");
    private static final String DATABASE = "default";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final StandaloneQueryRunner trino;
    private final HiveMetastore metastore;

    private TrinoServer(String endpoint, String bucket, String key, String secret) {
        Map<String, String> storage = Map.of(
                "fs.native-s3.enabled", "true",
                "s3.endpoint", endpoint,
                "s3.region", "us-east-1",
                "s3.path-style-access", "true",
                "s3.aws-access-key", key,
                "s3.aws-secret-key", secret);
        trino = new StandaloneQueryRunner(
                TestingSession.testSessionBuilder().setCatalog("hudi").setSchema(DATABASE).build());
        trino.installPlugin(new HudiPlugin());
        trino.installPlugin(new IcebergPlugin());
        trino.createCatalog("hudi", "hudi", with(storage, Map.of(
                "hive.metastore", "file",
                "hive.metastore.catalog.dir", "s3://" + bucket + "/metastore")));
        trino.createCatalog("iceberg", "iceberg", with(storage, Map.of(
                "iceberg.catalog.type", "TESTING_FILE_METASTORE",
                "iceberg.register-table-procedure.enabled", "true",
                "hive.metastore.catalog.dir", "s3://" + bucket + "/iceberg-metastore")));
        trino.execute("create schema iceberg." + DATABASE);
        HudiConnector connector = (HudiConnector) trino.getCoordinator().getConnector("hudi");
        metastore = connector.getInjector().getInstance(HiveMetastoreFactory.class).createMetastore(Optional.empty());
        metastore.createDatabase(Database.builder().setDatabaseName(DATABASE)
                .setOwnerName(Optional.empty()).setOwnerType(Optional.empty()).build());
    }

    private static Map<String, String> with(Map<String, String> some, Map<String, String> others) {
        Map<String, String> all = new HashMap<>(some);
        all.putAll(others);
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        TrinoServer server = new TrinoServer(arguments[0], arguments[1], arguments[2], arguments[3]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                server.answer(JSON.readTree(line), answer);
            } catch (RuntimeException error) {
                error.printStackTrace();
                answer.put("error", String.valueOf(error.getMessage()));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private void answer(JsonNode command, ObjectNode answer) {
        if (command.has("table")) {
            enter(command.get("table"));
            return;
        }
        ArrayNode rows = NODES.arrayNode();
        for (MaterializedRow row : trino.execute(command.get("sql").asText())) {
            rows.add(json(row));
        }
        answer.set("rows", rows);
    }

    private static JsonNode json(Object value) {
        ArrayNode parts = NODES.arrayNode();
        switch (value) {
            case null:
                return NODES.nullNode();
            case MaterializedRow row:
                row.getFields().forEach(each -> parts.add(json(each)));
                return parts;
            case List<?> values:
                values.forEach(each -> parts.add(json(each)));
                return parts;
            case Map<?, ?> map:
                map.forEach((key, each) -> parts.addArray().add(json(key)).add(json(each)));
                return parts;
            case Double number:
                return NODES.textNode("%016x".formatted(Double.doubleToLongBits(number)));
            case Float number:
                return NODES.textNode("%08x".formatted(Float.floatToIntBits(number)));
            default:
                return NODES.textNode(value.toString());
        }
    }

    private void enter(JsonNode table) {
        String name = table.get("name").asText();
        List<Column> columns = columns(table.get("columns"));
        Table.Builder entry = Table.builder().setDatabaseName(DATABASE).setTableName(name)
                .setOwner(Optional.empty()).setTableType("EXTERNAL_TABLE").setParameter("EXTERNAL", "TRUE")
                .setDataColumns(columns).setPartitionColumns(columns(table.get("partitioned_by")));
        place(entry.getStorageBuilder(), table);
        metastore.createTable(entry.build(), PrincipalPrivileges.NO_PRIVILEGES);
        List<PartitionWithStatistics> partitions = new ArrayList<>();
        for (JsonNode each : table.get("partitions")) {
            List<String> values = new ArrayList<>();
            each.get("values").forEach(value -> values.add(value.asText()));
            Partition.Builder partition = Partition.builder().setDatabaseName(DATABASE).setTableName(name)
                    .setColumns(columns).setValues(values);
            place(partition.getStorageBuilder(), each);
            partitions.add(new PartitionWithStatistics(
                    partition.build(), each.get("name").asText(), PartitionStatistics.empty()));
        }
        metastore.addPartitions(DATABASE, name, partitions);
    }

    private static void place(Storage.Builder storage, JsonNode entry) {
        storage.setStorageFormat(HUDI).setLocation(entry.get("location").asText());
    }

    private static List<Column> columns(JsonNode pairs) {
        List<Column> columns = new ArrayList<>();
        for (JsonNode pair : pairs) {
            HiveType type = HiveType.valueOf(pair.get(1).asText());
            columns.add(new Column(pair.get(0).asText(), type, Optional.empty(), Map.of()));
        }
        return columns;
    }
}
