"""A table that Hudi's Spark writer makes step by step, with a copy and Hudi's own rows of each step.

Needs pyspark 3.5 and nothing of this project.
"""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.index.type": "SIMPLE",
    "hoodie.metadata.enable": "false",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.rollback.using.markers": "false",
    "hoodie.simple.index.parallelism": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.delete.shuffle.parallelism": "1",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
}
"""Options of all tables. Services run only if a history calls them, and little is parallel."""

ON_READ = "hoodie.schema.on.read.enable"
"""Option that allows columns to be renamed. Readers need it, too."""

PAST = 8
"""Number of instants for which a state keeps the rows as of the instant."""
COLUMNS = {
    "id": "format_string('k%03d', n)",
    "city": "element_at(array('paris', 'rome', 'oslo'), cast(n % 3 as int) + 1)",
    "ts": "{ts}L",
    "v": "cast(n + {add} as int)",
    "price": "if(n % 7 = 0, null, n / 4 + {add})",
    "cost": "cast((n + {add}) / 4 as decimal(9, 2))",
    "day": "date_add(date '2024-01-01', cast(n + {add} as int))",
    "at": "timestamp_micros(1700000000123456 + n * 1000000 + {add})",
    "ok": "n % 2 = 0",
    "raw": "cast(concat('r', n) as binary)",
    "tags": "transform(sequence(0, cast(n % 3 as int)), x -> concat('t', x))",
    "counts": "if(n % 2 = 0, map(), map('a', cast(n as int)))",
    "spot": "if(n % 11 = 0, null, named_struct('x', cast(n + {add} as int), 'name', 'at {ts}'))",
}
"""Columns of a table, as expressions of Spark over the number ``n`` of a row."""


def session(jar, folder, zone="UTC"):
    """Return a local session with Hudi's extensions and settings for short jobs.

    Args:
        zone: Time zone of the JVM.
    """
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jar,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        f" -XX:ReservedCodeCacheSize=256m -Duser.timezone={zone}"
        # Hudi's Bloom index sends a lock to its tasks
        " --add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
    }
    builder = SparkSession.builder.master("local[1]").appName("states of Hudi")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class HudiTable:
    """A table, and the folder that gets its states.

    Attributes:
        path: The table's folder, by default a hidden one below ``folder``.
        options: Options of every write.
        columns: Expressions of the columns. A history changes them to evolve the schema.
    """

    def __init__(self, spark, folder, name, version, kind, options, path=None):
        self.spark, self.folder, self.name = spark, folder, name
        self.version, self.kind = version, kind
        self.path = path or folder / ".live" / name
        self.columns = dict(COLUMNS)
        self.options = {
            **OPTIONS,
            "hoodie.table.name": name,
            "hoodie.datasource.write.table.type": kind,
            "hoodie.write.table.version": str(version),
            **options,
        }
        self.states = 0
        self.started = time.monotonic()
        self.is_in_catalog = False

    def frame(self, numbers, ts, add=0, **columns):
        """Return rows of ``numbers``, with other expressions for some columns."""
        expressions = {**self.columns, **columns}
        lines = [f"{text.format(ts=ts, add=add)} as {name}" for name, text in expressions.items()]
        values = ", ".join(f"({number})" for number in numbers)
        return self.spark.sql(f"select {', '.join(lines)} from values {values} as rows(n)")

    def write(self, operation, numbers, ts, add=0, columns=None, **options):
        """Write rows with an operation of the data source."""
        self.save(operation, self.frame(numbers, ts, add, **(columns or {})), **options)

    def save(self, operation, frame, **options):
        """Write a frame with an operation of the data source."""
        chosen = self._chosen(operation, options)
        frame.write.format("hudi").options(**chosen).mode("append").save(str(self.path))

    def stream(self, numbers, ts, add=0, **options):
        """Upsert rows with a stream that continues from its checkpoint, and stops."""
        source = str(self.folder / f"source of {self.name}")
        frame = self.frame(numbers, ts, add)
        frame.write.mode("append").parquet(source)
        rows = self.spark.readStream.schema(frame.schema).parquet(source)
        chosen = self._chosen("upsert", options)
        writer = rows.writeStream.format("hudi").options(**chosen).trigger(availableNow=True)
        checkpoint = str(self.folder / f"checkpoint of {self.name}")
        writer.option("checkpointLocation", checkpoint).start(str(self.path)).awaitTermination()

    def _chosen(self, operation, options):
        """Return the options of a write."""
        chosen = {"hoodie.datasource.write.operation": operation, **self.options, **options}
        return {name: value for name, value in chosen.items() if value is not None}

    def insert(self, numbers, ts, add=0, **options):
        """Insert rows."""
        self.write("insert", numbers, ts, add, **options)

    def upsert(self, numbers, ts, add=0, **options):
        """Insert or update rows."""
        self.write("upsert", numbers, ts, add, **options)

    def delete(self, numbers, ts, **options):
        """Delete rows by key."""
        self.write("delete", numbers, ts, **options)

    def sql(self, text, **options):
        """Run a statement on the table, which it calls ``{t}``, and return its rows."""
        chosen = {**self.options, **options}
        for name, value in chosen.items():
            if value is not None:
                self.spark.conf.set(name, value)
        try:
            if not self.is_in_catalog and self.path.exists():
                self.spark.sql(f"create table {self.name} using hudi location '{self.path}'")
            self.is_in_catalog = True
            self.spark.catalog.refreshTable(self.name) if self.path.exists() else None
            return self.spark.sql(text.format(t=self.name, path=self.path)).collect()
        finally:
            for name in chosen:
                self.spark.conf.unset(name)

    def set_column(self, name, expression):
        """Add a column to later writes, or change its expression."""
        self.columns[name] = expression

    def drop_column(self, name):
        """Leave a column out of later writes."""
        del self.columns[name]

    def upgrade(self, version):
        """Upgrade or downgrade the table."""
        call = "downgrade_table" if version < self.version else "upgrade_table"
        name = {6: "SIX", 8: "EIGHT", 9: "NINE"}[version]
        self.sql(f"call {call}(table => '{self.name}', to_version => '{name}')")
        self.version = version
        self.options["hoodie.write.table.version"] = str(version)

    def plan_log_compaction(self):
        """Plan to merge log blocks, and return the instant, "" if there is nothing to merge."""
        client = self.client()
        empty = self.spark.sparkContext._jvm.org.apache.hudi.common.util.Option.empty()
        instant = client.scheduleLogCompaction(empty)
        client.close()
        return instant.get() if instant.isPresent() else ""

    def compact_logs(self, instant):
        """Merge the log blocks of the plan at ``instant``."""
        client = self.client()
        client.logCompact(instant, True)
        client.close()

    def client(self):
        """Return a write client of the JVM, for services that have no statement."""
        jvm = self.spark.sparkContext._jvm
        hudi = jvm.org.apache.hudi
        properties = jvm.java.util.Properties()
        for name, value in self.options.items():
            properties.setProperty(name, value)
        builder = hudi.config.HoodieWriteConfig.newBuilder().withPath(str(self.path))
        config = builder.forTable(self.name).withProperties(properties).build()
        context = hudi.client.common.HoodieSparkEngineContext(self.spark.sparkContext._jsc)
        return hudi.client.SparkRDDWriteClient(context, config)

    def instants(self):
        """Return the files of completed writes, in the order of their instants."""
        folder = self.path / ".hoodie" / ("timeline" if self.version >= 8 else "")
        kinds = (".commit", ".deltacommit", ".replacecommit")
        return sorted(file for file in folder.iterdir() if file.name.endswith(kinds))

    def last(self):
        """Return the newest instant of a completed write."""
        return self.instants()[-1].name[:17]

    def uncomplete(self):
        """Remove the completion of the newest write, as if the write were still pending.

        Returns the name and content of the removed file, for :meth:`complete`.
        """
        newest = self.instants()[-1]
        content = newest.read_bytes()
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        return newest.name, content

    def complete(self, uncompleted):
        """Complete a write of :meth:`uncomplete` at the current time. For versions 8 and 9."""
        name, content = uncompleted
        now = datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")[:17]
        instant, action = name.partition("_")[0], name.rpartition(".")[2]
        (self.path / ".hoodie" / "timeline" / f"{instant}_{now}.{action}").write_bytes(content)

    def keep(self, step, *, as_of=False):
        """Keep a copy of the table and Hudi's rows, with ``as_of`` also those of past instants."""
        state = self.folder / f"{self.name}-{self.states:02}_{step}"
        self.states += 1
        shutil.copytree(self.path, state / "table")
        self.write_rows(state / "rows.parquet")
        about = {
            "table": self.name,
            "step": step,
            "version": self.version,
            "type": self.kind,
            "options": self.options,
            "instant": self.last(),
            "rows_as_of": {},
        }
        for instant in [file.name[:17] for file in self.instants()[-PAST:]] if as_of else []:
            name = f"rows_{instant}.parquet"
            try:
                self.write_rows(state / name, **{"as.of.instant": instant})
                about["rows_as_of"][instant] = name
            except Exception as error:  # noqa: BLE001 - Hudi refuses instants that were cleaned
                about["rows_as_of"][instant] = {"error": str(error)[:300]}
        (state / "about.json").write_text(json.dumps(about, indent=1))
        print(f"{time.monotonic() - self.started:6.1f} s {state.name}", flush=True)

    def write_rows(self, path, **options):
        """Write the rows that Hudi reads with ``options`` into a Parquet file."""
        path = Path(path)
        reader = self.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
        if ON_READ in self.options:
            reader = reader.option(ON_READ, self.options[ON_READ])
        folder = path.with_suffix(".parts")
        reader.options(**options).load(str(self.path)).coalesce(1).write.parquet(str(folder))
        [part] = folder.glob("part-*.parquet")
        part.rename(path)
        shutil.rmtree(folder)

    def query(self, where, mode="strict", **options):
        """Return as JSON the keys of the rows that match a filter, and the number of slices read.

        Errors of indexes are raised, unless ``mode`` is "fallback". By default Hudi ignores them.
        """
        self.spark.conf.set("hoodie.fileIndex.dataSkippingFailureMode", mode)
        frame = self.spark.read.format("hudi").options(**options).load(str(self.path))
        frame = frame.where(where).select("id")
        keys = sorted(row["id"] for row in frame.collect())
        scan = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
        files = scan.metrics().get("numFiles")  # missing if Spark sees that no row can match
        return json.dumps({"keys": keys, "files": files.get().value() if files.isDefined() else 0})

    def matches(self, filters):
        """Return as JSON the keys of the rows that match each filter, read without indexes."""
        reader = self.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
        columns = [f"({where}) as c{place}" for place, where in enumerate(filters)]
        rows = reader.load(str(self.path)).selectExpr("id", *columns).collect()
        return json.dumps(
            [sorted(row["id"] for row in rows if row[place + 1]) for place in range(len(filters))]
        )
