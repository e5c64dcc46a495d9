"""How each engine on Spark loads, upserts, reads and compacts one table; imports nothing but
PySpark, in whose environment it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

KEY, ORDERING = "id", "ts"


class Engine:
    """A new table of one engine: ``name``, below ``folder``.  ``conf``: what its session needs;
    ``upserts``: whether it can.
    """

    conf: ClassVar[Mapping[str, str]] = {}
    upserts = True

    def __init__(self, spark: Any, folder: str, name: str) -> None:
        self.spark = spark
        self.name = name
        self.path = f"{folder}/{name}"

    def load(self, rows: Any) -> None:
        """Make the table of a DataFrame."""
        raise NotImplementedError

    def upsert(self, rows: Any) -> None:
        """Replace the rows of equal keys and insert the others."""
        rows.createOrReplaceTempView("fresh")
        self.spark.sql(
            f"merge into {self.table} t using fresh s on t.{KEY} = s.{KEY} "
            "when matched then update set * when not matched then insert *"
        )

    def view(self) -> None:
        """Let ``trips`` name the table in SQL."""
        self.spark.sql(f"select * from {self.table}").createOrReplaceTempView("trips")

    def compact(self) -> None:
        """Rewrite what upserts have left."""
        raise NotImplementedError

    @property
    def table(self) -> str:
        """The name of the table in SQL."""
        raise NotImplementedError


class Parquet(Engine):
    """Files without a table: what Spark alone can do."""

    upserts = False

    def load(self, rows: Any) -> None:
        """Write Parquet files."""
        rows.write.parquet(self.path)

    def view(self) -> None:
        """Read them."""
        self.spark.read.parquet(self.path).createOrReplaceTempView("trips")


class Mdt(Engine):
    """This package; small inputs are written in process, as it does by itself."""

    options: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spark: Any, folder: str, name: str) -> None:
        import mdt.spark

        super().__init__(spark, folder, name)
        mdt.spark.enable(spark)

    def load(self, rows: Any) -> None:
        """Make a merge-on-read table, key index included."""
        made = rows.write.format("mdt").options(**self.options)
        made = made.option("operation", "bulk_insert").option("table_type", "MERGE_ON_READ")
        made.option("key", KEY).option("ordering", ORDERING).save(self.path)

    def upsert(self, rows: Any) -> None:
        """Append, which upserts."""
        rows.write.format("mdt").mode("append").options(**self.options).save(self.path)

    def view(self) -> None:
        """Read it by name."""
        self.spark.read.format("mdt").load(self.path).createOrReplaceTempView("trips")

    def compact(self) -> None:
        """Merge log files into base files, in process."""
        import mdt

        mdt.open(self.path).compact()


class MdtTasks(Mdt):
    """This package, all rows through tasks."""

    options: ClassVar[Mapping[str, str]] = {"mdt.spark.local.bytes.max": "0"}

    def compact(self) -> None:
        """Merge log files into base files, in tasks."""
        import mdt

        mdt.open(self.path).compact(spark=self.spark)


class Delta(Engine):
    """Delta Lake with deletion vectors."""

    conf: ClassVar[Mapping[str, str]] = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    }

    @property
    def table(self) -> str:
        """By path."""
        return f"delta.`{self.path}`"

    def load(self, rows: Any) -> None:
        """Write the first version."""
        rows.write.format("delta").save(self.path)

    def compact(self) -> None:
        """Join small files and purge deleted rows."""
        self.spark.sql(f"optimize {self.table}")


class Iceberg(Engine):
    """Apache Iceberg, format version 3, merge-on-read with deletion vectors."""

    conf: ClassVar[Mapping[str, str]] = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "hadoop",
        "spark.sql.catalog.local.warehouse": "{folder}",
    }

    def __init__(self, spark: Any, folder: str, name: str) -> None:
        super().__init__(spark, f"{folder}/db", name)

    @property
    def table(self) -> str:
        """In a catalog that is a folder."""
        return f"local.db.{self.name}"

    def load(self, rows: Any) -> None:
        """Create the table as select."""
        modes = {f"write.{name}.mode": "merge-on-read" for name in ("merge", "update", "delete")}
        made = rows.writeTo(self.table).tableProperty("format-version", "3")
        for name, value in modes.items():
            made = made.tableProperty(name, value)
        made.create()

    def compact(self) -> None:
        """Rewrite all data files that have deleted rows, or are small."""
        options = "map('delete-file-threshold', '1', 'min-input-files', '2')"
        call = (
            f"call local.system.rewrite_data_files(table => 'db.{self.name}', options => {options})"
        )
        self.spark.sql(call).collect()


class Hudi(Engine):
    """Apache Hudi, merge-on-read with its record level index."""

    conf: ClassVar[Mapping[str, str]] = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    }
    options: ClassVar[Mapping[str, str]] = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.datasource.write.precombine.field": ORDERING,
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.index.type": "RECORD_INDEX",
    }

    def load(self, rows: Any) -> None:
        """Bulk insert."""
        self._write(rows, "bulk_insert", "errorifexists")

    def upsert(self, rows: Any) -> None:
        """Upsert."""
        self._write(rows, "upsert", "append")

    def view(self) -> None:
        """Read its snapshot, by its metadata table."""
        rows = (
            self.spark.read.format("hudi").option("hoodie.metadata.enable", "true").load(self.path)
        )
        rows.createOrReplaceTempView("trips")

    def compact(self) -> None:
        """Schedule and run a compaction."""
        self.spark.sql(
            f"call run_compaction(op => 'scheduleandexecute', path => '{self.path}')"
        ).collect()

    def _write(self, rows: Any, operation: str, mode: str) -> None:
        told = {**self.options, "hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**told).mode(mode).save(self.path)


ENGINES: Mapping[str, type[Engine]] = {
    "mdt": Mdt,
    "mdt in tasks": MdtTasks,
    "parquet": Parquet,
    "delta": Delta,
    "iceberg": Iceberg,
    "hudi": Hudi,
}
