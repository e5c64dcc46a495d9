"""Unsupported statements of Spark SQL, with alternatives.

``java/sql/StatementRule.java`` handles every statement that names an mdt table.
:mod:`mdt.source.definitions` refuses unknown statements with :func:`refusal`, so that no statement
is accepted and ignored. docs/spark-sql.md lists the outcome of each statement.
"""

from __future__ import annotations

from collections.abc import Mapping

from mdt.errors import Unsupported

_MAKE_ANEW = "create another table and insert the rows into it"
_COLUMNS = "ALTER TABLE … ADD COLUMN, DROP COLUMN and ALTER COLUMN change columns one by one"
_PARTITIONS = (
    "partitions appear with their first row; ALTER TABLE … DROP PARTITION and SHOW PARTITIONS work"
)
_CHECKS = "check rows before writing; NOT NULL in CREATE TABLE is enforced"
_CLUSTER = "CALL mdt.cluster(table => …, by => …) sorts existing rows"
_LOCATION = "DROP TABLE (files at a LOCATION stay), then CREATE TABLE … USING mdt LOCATION …"
_INDEX = "CALL mdt.create_index('table', 'bitmap(column)') and CALL mdt.drop_index"
_DEFAULT = (
    "t.alter(add=…, defaults=…) in Python sets a value for older rows; INSERT must set it for new"
    " rows"
)
_REPLACED = (
    "INSERT OVERWRITE replaces all rows in one commit; for other columns DROP TABLE, CREATE TABLE"
)

REFUSED: Mapping[str, tuple[str, str]] = {
    "AddCheckConstraint": ("ALTER TABLE … ADD CONSTRAINT", _CHECKS),
    "AddConstraint": ("ALTER TABLE … ADD CONSTRAINT", _CHECKS),
    "AddDefault": ("ALTER TABLE … ADD COLUMN … DEFAULT", _DEFAULT),
    "AddPartitions": ("ALTER TABLE … ADD PARTITION", _PARTITIONS),
    "AlterTableClusterBy": ("ALTER TABLE … CLUSTER BY", _CLUSTER),
    "AlterTableCollation": (
        "ALTER TABLE … DEFAULT COLLATION",
        "collate in queries: WHERE name COLLATE UTF8_LCASE = 'x'",
    ),
    "AnalyzeColumn": (
        "ANALYZE TABLE",
        "CALL mdt.analyze('table', columns => 'a, b'); sizes and row counts are always exact",
    ),
    "AnalyzeTable": (
        "ANALYZE TABLE",
        "CALL mdt.analyze('table'); sizes and row counts are always exact",
    ),
    "CommentOnField": ("COMMENT on a field of a struct", "comment on the column"),
    "CreateIndex": ("CREATE INDEX", _INDEX),
    "DescribeTablePartition": (
        "DESCRIBE … PARTITION",
        "SELECT * FROM mdt_files('table') lists files by partition",
    ),
    "DropConstraint": (
        "ALTER TABLE … DROP CONSTRAINT",
        "tables have no constraints; ALTER COLUMN … DROP NOT NULL makes a column nullable",
    ),
    "DropIndex": ("DROP INDEX", _INDEX),
    "InsertEvolving": (
        "INSERT WITH SCHEMA EVOLUTION",
        "ALTER TABLE … ADD COLUMNS first, or t.upsert(df, evolve=True)",
    ),
    "InsertIntoDir": (
        "INSERT OVERWRITE DIRECTORY … USING mdt",
        (
            "CREATE TABLE … USING mdt OPTIONS (key …) LOCATION … AS SELECT …, or INSERT OVERWRITE"
            " of that table"
        ),
    ),
    "InsertReplacing": (
        "INSERT … REPLACE WHERE, ON and USING",
        (
            "INSERT OVERWRITE … PARTITION (…) replaces partitions; DELETE and INSERT replace other"
            " rows"
        ),
    ),
    "LoadData": ("LOAD DATA", "INSERT INTO … SELECT * FROM parquet.`path`"),
    "PlaceOfField": (
        "FIRST and AFTER for a field of a struct",
        "leave them out: new fields come last",
    ),
    "RecoverPartitions": ("ALTER TABLE … RECOVER PARTITIONS", _PARTITIONS),
    "RenamePartitions": (
        "ALTER TABLE … RENAME PARTITION",
        "UPDATE … SET the partition column, with a scope that lets rows move",
    ),
    "RepairTable": ("MSCK REPAIR TABLE", f"the table knows its partitions: {_PARTITIONS}"),
    "ReplaceColumns": ("ALTER TABLE … REPLACE COLUMNS", _COLUMNS),
    "ReplaceTable": ("CREATE OR REPLACE TABLE", _REPLACED),
    "ReplaceTableAsSelect": ("CREATE OR REPLACE TABLE", _REPLACED),
    "SetDefault": ("ALTER COLUMN … SET DEFAULT and DROP DEFAULT", _DEFAULT),
    "SetNotNull": ("ALTER COLUMN … SET NOT NULL", _MAKE_ANEW),
    "SetTableLocation": ("ALTER TABLE … SET LOCATION", _LOCATION),
    "SetTableSerDeProperties": ("ALTER TABLE … SET SERDE and SERDEPROPERTIES", _LOCATION),
    "ShowCreateTable": ("SHOW CREATE TABLE … AS SERDE", "leave AS SERDE out"),
    "ShowTablePartition": (
        "SHOW TABLE EXTENDED … PARTITION",
        "SHOW PARTITIONS, or SELECT * FROM mdt_files('table')",
    ),
}
"""Class of a statement's Spark plan, or a part of a statement -> (SQL syntax, alternative)."""


def refusal(kind: str) -> Unsupported:
    """Return the error for a statement. ``kind``: a key of REFUSED, or the class of a plan that
    this version does not know.
    """
    statement, instead = REFUSED.get(
        kind, (kind, "docs/spark-sql.md lists the statements that work")
    )
    return Unsupported(f"{statement} is not supported for mdt tables", hint=instead)
