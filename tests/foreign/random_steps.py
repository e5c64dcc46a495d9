"""Random histories of a table that Hudi writes: a kind of table, and a sequence of steps.

A step is a function of a session of Hudi and the path of a table, so that other writers can have
steps between those of Hudi.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path

from counting import count
from hudi_kinds import (
    BLOOM,
    COLUMN_STATS,
    COMMIT_TIME,
    FLAT,
    METADATA_TABLE,
    PARQUET_LOGS,
    PLAIN_PATHS,
    RECORD_INDEX,
)
from hudi_session import HudiSession, Refused
from hudi_table import COW, MOR

Step = Callable[[HudiSession, Path], None]
KEYS = 60
"""Upserts and deletes choose from so many numbers of rows. Inserts use higher numbers."""
CITIES = ("paris", "rome", "oslo")
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
CDC = {"hoodie.table.cdc.enabled": "true"}
SMALL_FILES = {
    "hoodie.parquet.max.file.size": "20000",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.copyonwrite.insert.split.size": "9",
    "hoodie.copyonwrite.insert.auto.split": "false",
}
ARCHIVING = {
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
}

LACKS_SAVEPOINT = ("Unable to find completion time", "delete metadata table and retry")
"""Errors of Hudi if it cannot restore its metadata table, which is newer than the savepoint."""
FOLLOWED = re.compile(r"Found commits after time :(\d+), please rollback greater commits first")
"""Error of Hudi if it cannot roll back a failed write, because a later instant has completed, e.g.
of a clustering.
"""
COMPACTED = "is earlier than the latest compaction"
"""Error of Hudi if it cannot roll back a write before a compaction of its metadata table."""
WITHOUT_METADATA = {
    "hoodie.metadata.enable": "false",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.record.index.enable": "false",
    "hoodie.metadata.global.record.level.index.enable": "false",
}
"""Options with which a write of Hudi removes the metadata table."""
LAZY = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
"""Options with which Hudi's cleaner rolls back failed writes whose heartbeat is old. By default,
the next write rolls them back.
"""


class RandomSteps:
    """The kind of a table and its steps, all from a seed.

    Attributes:
        kind: Type of the table.
        options: Options of Hudi's writes.
    """

    def __init__(self, seed: int, version: int) -> None:
        draw = self._draw = random.Random(f"{seed} {version}")
        self.version = version
        self.kind = draw.choice((COW, MOR, MOR))
        self.options: dict[str, str] = {}
        self._has_metadata_table = draw.random() < 0.5
        if self._has_metadata_table:
            indexes = [METADATA_TABLE, COLUMN_STATS, BLOOM, METADATA_TABLE | BUCKETS]
            if version >= 8:
                indexes.append(RECORD_INDEX)
            self.options |= draw.choice(indexes)
        elif draw.random() < 0.3:
            self.options |= BUCKETS
        self._has_buckets = self.options.get("hoodie.index.type") == "BUCKET"
        self._is_flat = draw.random() < 0.25
        for chance, options in (
            (1.0 if self._is_flat else 0.0, FLAT),
            (0.3, COMMIT_TIME),
            (0.3 if self.kind == MOR else 0.0, PARQUET_LOGS),
            (0.0 if self._has_buckets else 0.3, SMALL_FILES),
            (0.2 if version >= 8 else 0.0, CDC),
        ):
            if draw.random() < chance:
                self.options |= options
        self._clock = 0
        self._inserted = KEYS
        self._columns = 0
        self._has_plan = False

    def first(self) -> tuple[str, Step]:
        """Return the step that creates the table."""
        operation = "insert" if self._has_buckets else "bulk_insert"
        return self._write(operation, range(0, KEYS, 2))

    def next(self) -> tuple[str, Step]:
        """Return the name of a random step and the step itself."""
        steps = dict(self._weights())
        [draw_step] = self._draw.choices(list(steps), list(steps.values()))
        name, step = draw_step()
        return name, self._unblocking(step)

    def _unblocking(self, step: Step) -> Step:
        """Return a step after which Hudi can write again. If Hudi refuses the step because it
        cannot roll back a failed write, or cannot do so in its metadata table, it also refuses all
        later writes. The step then does what a user would do.
        """

        def unblocking_step(hudi: HudiSession, path: Path) -> None:
            try:
                step(hudi, path)
            except Refused as error:
                if FOLLOWED.search(str(error)):
                    hudi.call(path, "sql", "call run_clean(table => '{t}')", **LAZY)
                if COMPACTED in str(error):
                    options = dict(WITHOUT_METADATA)
                    if self.options.get("hoodie.index.type") == "RECORD_INDEX":
                        options["hoodie.index.type"] = "GLOBAL_SIMPLE"
                    _, write = self._write("upsert", self._numbers(6), **options)
                    write(hudi, path)
                    count("metadata tables with compacted dead writes, which Hudi removed")
                raise

        return unblocking_step

    def _weights(self) -> Mapping[Callable[[], tuple[str, Step]], float]:
        """Return the steps that the table allows, with their weights."""
        weights: dict[Callable[[], tuple[str, Step]], float] = {
            self._upsert: 6,
            self._late_upsert: 2,
            self._delete: 3,
            self._insert: 1.5,
            self._overwrite: 1,
            self._overwrite_table: 0.3,
            self._clean: 1,
            self._archive: 1,
            self._rollback: 1,
            self._restore: 0.7,
            self._add_column: 1,
        }
        if not self._has_buckets:  # bulk inserts of Spark do not find buckets
            weights |= {self._bulk_insert: 1, self._cluster: 1.5, self._cluster_between: 0.7}
        if not self._is_flat:
            weights |= {self._delete_partition: 0.5, self._drop_partition: 0.3}
        if self.version >= 8 or self.kind == COW:
            weights |= {self._sql_update: 1, self._sql_delete: 1, self._sql_merge: 1}
        if self.kind == MOR:
            weights |= {self._compact: 1.5, self._plan_or_run: 2, self._compact_logs: 1}
        if not self._has_metadata_table:
            weights[self._die] = 1
        if self.version < 9:
            weights[self._upgrade] = 0.3
        return weights

    def _numbers(self, most: int) -> list[int]:
        return sorted(self._draw.sample(range(KEYS), self._draw.randrange(1, most)))

    def _time(self) -> int:
        self._clock += 10
        return self._clock

    def _write(
        self,
        operation: str,
        numbers: object,
        *,
        ts: int | None = None,
        columns: Mapping[str, str] | None = None,
        **options: str,
    ) -> tuple[str, Step]:
        """Return a step that writes rows with an operation of Hudi's data source."""
        at, add = self._time(), self._draw.randrange(1000)
        rows = list(numbers)  # type: ignore[call-overload]
        ts = at if ts is None else ts
        more = f" {columns or ''} {options or ''}".rstrip()
        return f"{operation} {rows} ts={ts} add={add}{more}", lambda hudi, path: hudi.call(
            path, "write", operation, rows, ts, add, columns, **options
        )

    def _sql(self, *statements: str) -> tuple[str, Step]:
        def step(hudi: HudiSession, path: Path) -> None:
            for text in statements:
                hudi.call(path, "sql", text)

        return "; ".join(statements), step

    def _upsert(self) -> tuple[str, Step]:
        return self._write("upsert", self._numbers(20))

    def _late_upsert(self) -> tuple[str, Step]:
        return self._write("upsert", self._numbers(12), ts=self._draw.randrange(self._clock + 1))

    def _delete(self) -> tuple[str, Step]:
        return self._write("delete", self._numbers(12))

    def _new_numbers(self) -> range:
        """Return unused numbers, because Hudi's inserts do not look for existing keys."""
        start, self._inserted = self._inserted, self._inserted + self._draw.randrange(1, 9)
        return range(start, self._inserted)

    def _insert(self) -> tuple[str, Step]:
        return self._write("insert", self._new_numbers())

    def _bulk_insert(self) -> tuple[str, Step]:
        return self._write("bulk_insert", self._new_numbers())

    def _overwrite(self) -> tuple[str, Step]:
        return self._write("insert_overwrite", self._numbers(9))

    def _overwrite_table(self) -> tuple[str, Step]:
        return self._write("insert_overwrite_table", self._numbers(30))

    def _delete_partition(self) -> tuple[str, Step]:
        partition = self._draw.choice(CITIES)
        if not PLAIN_PATHS.items() <= self.options.items():
            partition = f"city={partition}"
        option = {"hoodie.datasource.write.partitions.to.delete": partition}
        return self._write("delete_partition", [0], **option)

    def _drop_partition(self) -> tuple[str, Step]:
        city = self._draw.choice(CITIES)
        return self._sql(f"alter table {{t}} drop partition (city='{city}')")

    def _sql_update(self) -> tuple[str, Step]:
        value, rest = self._draw.randrange(-99, 0), self._draw.randrange(5)
        return self._sql(f"update {{t}} set v = {value}, ok = null where v % 5 = {rest}")

    def _sql_delete(self) -> tuple[str, Step]:
        return self._sql(f"delete from {{t}} where v % 7 = {self._draw.randrange(7)}")

    def _sql_merge(self) -> tuple[str, Step]:
        rows = ", ".join(
            f"('k{number:03}', {self._time()}L, {self._draw.randrange(1000)})"
            for number in self._numbers(6)
        )
        source = f"select * from values {rows} as r(id, ts, v)"
        if self._has_buckets:  # Hudi 1.2 inserts rows for missing keys, and then cannot read them
            source += " where id in (select id from {t})"
        return self._sql(
            f"merge into {{t}} t using ({source}) s"
            " on t.id = s.id when matched then update set t.v = s.v, t.ts = s.ts"
        )

    def _compact(self) -> tuple[str, Step]:
        self._has_plan = False
        return self._sql("call run_compaction(op => 'scheduleAndExecute', table => '{t}')")

    def _plan_or_run(self) -> tuple[str, Step]:
        self._has_plan = not self._has_plan
        action = "schedule" if self._has_plan else "run"
        return self._sql(f"call run_compaction(op => '{action}', table => '{{t}}')")

    def _compact_logs(self) -> tuple[str, Step]:
        def step(hudi: HudiSession, path: Path) -> None:
            instant = hudi.call(path, "plan_log_compaction")
            if instant:
                hudi.call(path, "compact_logs", instant)

        return "log compaction", step

    def _cluster(self) -> tuple[str, Step]:
        return self._sql("call run_clustering(table => '{t}', order => 'v')")

    def _cluster_between(self) -> tuple[str, Step]:
        """Plan a clustering, and insert rows before it runs."""
        _, plan = self._sql("call run_clustering(table => '{t}', op => 'schedule', order => 'v')")
        name, insert = self._insert()
        _, run = self._sql("call run_clustering(table => '{t}', op => 'execute')")
        return f"clustering around {name}", steps(plan, insert, run)

    def _clean(self) -> tuple[str, Step]:
        retained = self._draw.randrange(1, 4)
        return self._sql(f"call run_clean(table => '{{t}}', retain_commits => {retained})")

    def _archive(self) -> tuple[str, Step]:
        name, upsert = self._write("upsert", self._numbers(6), **ARCHIVING)

        def archive(hudi: HudiSession, path: Path) -> None:
            try:
                upsert(hudi, path)
            finally:
                _remove_old_restores(path)

        return name, archive

    def _rollback(self) -> tuple[str, Step]:
        """Upsert rows, and roll the upsert back."""
        name, upsert = self._upsert()

        def rollback(hudi: HudiSession, path: Path) -> None:
            last = hudi.call(path, "last")
            text = "call rollback_to_instant(table => '{t}', instant_time => '%s')"
            hudi.call(path, "sql", text % last)

        return f"rollback of {name}", steps(upsert, rollback)

    def _restore(self) -> tuple[str, Step]:
        """Return to a savepoint after an upsert and a delete."""
        name, upsert = self._upsert()
        _, delete = self._delete()
        saved = ""

        def save(hudi: HudiSession, path: Path) -> None:
            nonlocal saved
            saved = hudi.call(path, "last")
            text = "call create_savepoint(table => '{t}', commit_time => '%s')"
            hudi.call(path, "sql", text % saved)

        def restore(hudi: HudiSession, path: Path) -> None:
            text = "call rollback_to_savepoint(table => '{t}', instant_time => '%s')"
            options = {}
            if "RECORD_INDEX" in self.options.values() and _is_compacted_since(path, saved):
                # Hudi would index the rows before the restore, and filters on keys would miss rows
                options["hoodie.metadata.enable"] = "false"
                count("restores of Hudi that remove its metadata table")
            try:
                hudi.call(path, "sql", text % saved, **options)
            except Refused as error:
                if not any(reason in str(error) for reason in LACKS_SAVEPOINT):
                    raise
                # Hudi refuses every write until the same restore succeeds
                hudi.call(path, "sql", text % saved, **{"hoodie.metadata.enable": "false"})
            text = "call delete_savepoint(table => '{t}', instant_time => '%s')"
            hudi.call(path, "sql", text % saved)

        return f"restore after {name}", steps(save, upsert, delete, restore)

    def _add_column(self) -> tuple[str, Step]:
        self._columns += 1
        column = f"extra{self._columns}"
        expression = self._draw.choice(("cast(n as int)", "concat('x', n)", "n / 3D"))
        name, upsert = self._upsert()

        def add(hudi: HudiSession, path: Path) -> None:
            hudi.call(path, "set_column", column, f"if(n < 0, null, {expression})")

        return f"column {column}: {expression}, {name}", steps(add, upsert)

    def _die(self) -> tuple[str, Step]:
        """Upsert rows, and remove the completion, as if the writer had crashed before it."""
        name, upsert = self._upsert()
        return f"dead writer of {name}", steps(upsert, _uncomplete)

    def _upgrade(self) -> tuple[str, Step]:
        self.version = {6: 8, 8: 9}[self.version]
        version = self.version
        return f"upgrade to {version}", lambda hudi, path: hudi.call(path, "upgrade", version)


def steps(*parts: Step) -> Step:
    """Return a step that carries out several steps."""

    def step(hudi: HudiSession, path: Path) -> None:
        for part in parts:
            part(hudi, path)

    return step


def _is_compacted_since(path: Path, savepoint: str) -> bool:
    """Return True if the first compaction of the metadata table follows a savepoint. A restore of
    Hudi 1.2 then rebuilds that table before it removes any rows.
    """
    folder = path / ".hoodie" / "metadata" / ".hoodie"
    first = min((file.name for file in folder.rglob("*.commit")), default="")
    return first >= savepoint


def _remove_old_restores(path: Path) -> None:
    """Remove the restores before the first write of the timeline, which Hudi never archives.

    Hudi 1.2 treats archived writes after them as pending ones. It then adds their log files to the
    newest file slice, so that deleted rows appear again after a compaction.
    """
    folder = path / ".hoodie" / "timeline"
    files = sorted(file for file in folder.glob("2*") if file.is_file())
    for file in takewhile(lambda file: ".restore" in file.name, files):
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        count("files of restores that Hudi does not archive")


def _uncomplete(hudi: HudiSession, path: Path) -> None:
    hudi.call(path, "uncomplete")
