"""Whole version 6 tables put together from mdt.hudi's modules, read by hudi-rs; and real Hudi
tables read by us.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi import HudiReadOptions, HudiTable
from pyroaring import BitMap

from mdt.hudi import avro_schema, base_file, log_file, partitions, properties, record_keys, v6
from mdt.hudi.commit_metadata import NO_PREVIOUS, WRITTEN, CommitMetadata
from mdt.schema import declared

T1, T2, T3 = "20261121053000001", "20261121053000002", "20261121053000003"
TRIPS = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("fare", pa.float64())]
)


class Writer:
    """Writes a table the way the engine does, without its machinery: one commit a call."""

    def __init__(
        self,
        root: Path,
        *,
        columns: pa.Schema,
        key: Sequence[str] = ("id",),
        partition_by: Sequence[str] = (),
        ordering: str | None = None,
        table_type: str = "MERGE_ON_READ",
        name: str = "trips",
    ) -> None:
        self.root, self.columns, self.key, self.partition_by, self.ordering = (
            root,
            columns,
            key,
            partition_by,
            ordering,
        )
        self.action = "deltacommit" if table_type == "MERGE_ON_READ" else "commit"
        self.avro, self.avro_meta = (
            avro_schema.to_avro(columns, name, meta_fields=meta) for meta in (False, True)
        )
        self.groups: dict[str, tuple[str, str, str, pa.Array]] = {}
        self.logs: dict[str, list[str]] = {}
        found = v6.table_properties(
            name=name,
            table_type=table_type,
            key_fields=key,
            partition_fields=partition_by,
            ordering=ordering,
            schema_json=self.avro,
            extra={},
        )
        self._put(".hoodie/hoodie.properties", properties.encode(found))

    def _put(self, path: str, data: Any) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def insert(self, instant: str, table: pa.Table) -> None:
        """Write one base file a partition; an existing file group gets a new slice."""
        key_texts = record_keys.record_keys(table, self.key)
        codes, paths = partitions.partition_paths(table, self.partition_by)
        stats = []
        for code, partition in enumerate(paths):
            mine = pa.array(codes == code)
            stats.append(
                self._base(instant, partition, table.filter(mine), key_texts.filter(mine), code)
            )
        self._commit(instant, stats, "INSERT")

    def _base(
        self, instant: str, partition: str, table: pa.Table, record_keys: pa.Array, task: int
    ) -> dict[str, Any]:
        old = self.groups.get(partition)
        file_id = old[0] if old else base_file.new_file_id(f"{task:032x}")
        name = base_file.name(file_id, f"{task}-0-0", instant)
        meta = base_file.meta_columns(
            len(table),
            instant=instant,
            task=task,
            keys=record_keys,
            partition=partition,
            file_name=name,
        )
        data, _ = base_file.encode(
            base_file.with_meta_columns(table, meta),
            row_group_rows=3,
            avro_schema=self.avro_meta,
            min_key=pc.min(record_keys).as_py(),
            max_key=pc.max(record_keys).as_py(),
            bloom=None,
        )
        self._put(f"{partition}/{name}" if partition else name, data)
        depth = len(self.partition_by)
        self._put(
            f"{partition}/.hoodie_partition_metadata", properties.partition_metadata(instant, depth)
        )
        self.groups[partition] = (file_id, instant, name, record_keys)
        self.logs[partition] = []
        return self._stat(partition, name, file_id, old[1] if old else None, len(table), len(data))

    def change(
        self, instant: str, partition: str, upserts: pa.Table | None, deletes: Sequence[str] = ()
    ) -> None:
        """Write one log file: a data block and a delete block, with positions where every record
        has one.
        """
        file_id, base, base_name, base_keys = self.groups[partition]
        position = {key: at for at, key in enumerate(base_keys.to_pylist())}
        blocks = b""
        if upserts is not None:
            upserts, positions = self._by_position(upserts, position)
            meta = base_file.meta_columns(
                len(upserts),
                instant=instant,
                task=0,
                keys=record_keys.record_keys(upserts, self.key),
                partition=partition,
                file_name=file_id,
            )
            data, _ = base_file.encode(
                base_file.with_meta_columns(upserts, meta),
                row_group_rows=2,
                avro_schema=self.avro_meta,
                min_key=None,
                max_key=None,
                bloom=None,
                compression="zstd",
            )
            block, offset = log_file.data_block(
                data,
                instant=instant,
                avro_schema=self.avro_meta,
                positions=positions,
                base_instant=base,
            )
            assert block[offset : offset + 4] == b"PAR1"
            blocks += block
        if deletes:
            order = sorted(deletes, key=position.__getitem__)
            blocks += log_file.delete_block(
                pa.array(order),
                partition,
                instant=instant,
                avro_schema=self.avro_meta,
                positions=BitMap(position[key] for key in order),
                base_instant=base,
            )
        name = log_file.name(file_id, base, len(self.logs[partition]) + 1, "0-0-0")
        self.logs[partition].append(name)
        self._put(f"{partition}/{name}" if partition else name, blocks)
        stat = self._stat(
            partition,
            name,
            file_id,
            base,
            0 if upserts is None else len(upserts),
            len(blocks),
            base_name,
        )
        self._commit(instant, [stat], "UPSERT")

    def _by_position(
        self, table: pa.Table, position: Mapping[str, int]
    ) -> tuple[pa.Table, BitMap | None]:
        at = [position.get(key, -1) for key in record_keys.record_keys(table, self.key).to_pylist()]
        if min(at) < 0:
            return table, None
        return table.take(pc.sort_indices(pa.array(at))), BitMap(at)

    def _stat(
        self,
        partition: str,
        name: str,
        file_id: str,
        previous: str | None,
        rows: int,
        size: int,
        base: str | None = None,
    ) -> dict[str, Any]:
        return {
            "partition": partition,
            "file_id": file_id,
            "name": name,
            "log_version": 0 if base is None else len(self.logs[partition]),
            "size": size,
            "rows": rows,
            "inserts": 0,
            "updates": 0,
            "deletes": 0,
            "previous_instant": previous or NO_PREVIOUS,
            "base_name": base or "",
            "log_names": self.logs[partition],
        }

    def _commit(self, instant: str, files: Sequence[dict[str, Any]], operation: str) -> None:
        written = pa.Table.from_pylist(list(files), schema=WRITTEN)
        told = CommitMetadata(
            written, self.avro, operation, compacted=False, extra={"mdt.seq": "1"}
        )
        layout = v6.Version6()
        for path, data in [
            *layout.announced(instant, self.action),
            *layout.completed(instant, self.action, told, ()),
        ]:
            self._put(path, data)


def read(root: Path, *, positions: bool = False, as_of: str | None = None) -> list[dict[str, Any]]:
    """What hudi-rs finds, without meta columns, in the order of the first column."""
    options = HudiReadOptions(
        hudi_options={"hoodie.merge.use.record.positions": str(positions).lower()}
    )
    if as_of is not None:
        options = options.with_as_of_timestamp(as_of)
    table = HudiTable(str(root))
    batches = [batch for batch in table.read(options) if batch.num_rows]
    if not batches:
        return []
    found = pa.Table.from_batches(batches).drop_columns(list(avro_schema.META_FIELDS))
    return found.sort_by(found.column_names[0]).to_pylist()


def trips(*rows: tuple[str, int, str | None, float]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(TRIPS.names, row, strict=True)) for row in rows], schema=TRIPS
    )


FIRST = trips(
    ("a", 10, "x", 1.0),
    ("b", 10, "x", 2.0),
    ("c", 10, "x", 3.0),
    ("d", 10, "x", 4.0),
    ("e", 10, "x", 5.0),
)
with_and_without_positions = pytest.mark.parametrize("positions", [False, True])


@with_and_without_positions
@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize("partition_by", [(), ("city",)])
def test_a_merge_on_read_table_with_updates_inserts_and_deletes_in_logs_reads_right(
    tmp_path: Path, positions: bool, ordering: str | None, partition_by: tuple[str, ...]
) -> None:
    writer = Writer(tmp_path, columns=TRIPS, partition_by=partition_by, ordering=ordering)
    place = "city=x" if partition_by else ""
    writer.insert(T1, FIRST)
    writer.change(T2, place, trips(("d", 20, "x", 40.0), ("b", 20, "x", 20.0)), ["c", "a"])
    writer.change(T3, place, trips(("f", 5, "x", 6.0), ("d", 30, "x", 41.0)))
    first, second = (
        FIRST.to_pylist(),
        trips(("b", 20, "x", 20.0), ("d", 20, "x", 40.0), ("e", 10, "x", 5.0)).to_pylist(),
    )
    third = trips(
        ("b", 20, "x", 20.0), ("d", 30, "x", 41.0), ("e", 10, "x", 5.0), ("f", 5, "x", 6.0)
    ).to_pylist()
    assert read(tmp_path, positions=positions, as_of=T1) == first
    assert read(tmp_path, positions=positions, as_of=T2) == second
    assert read(tmp_path, positions=positions) == third


@with_and_without_positions
def test_a_merge_on_read_table_of_two_partitions_whose_deletes_alone_change_one(
    tmp_path: Path, positions: bool
) -> None:
    writer = Writer(tmp_path, columns=TRIPS, partition_by=("city",))
    writer.insert(T1, trips(("a", 1, "x", 1.0), ("b", 1, "y", 2.0), ("c", 1, "x", 3.0)))
    writer.change(T2, "city=x", None, ["c"])
    assert [row["id"] for row in read(tmp_path, positions=positions)] == ["a", "b"]


@pytest.mark.parametrize("partition_by", [(), ("city",)])
def test_a_copy_on_write_table_reads_the_newest_slice(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    writer = Writer(tmp_path, columns=TRIPS, partition_by=partition_by, table_type="COPY_ON_WRITE")
    writer.insert(T1, FIRST)
    newer = trips(("a", 20, "x", 10.0), ("b", 10, "x", 2.0))
    writer.insert(T2, newer)
    assert read(tmp_path) == newer.to_pylist()
    assert read(tmp_path, as_of=T1) == FIRST.to_pylist()


def test_composite_keys_and_several_partition_levels_read_right(tmp_path: Path) -> None:
    columns = pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("n", pa.int32()),
            ("ok", pa.bool_()),
            ("v", pa.int32()),
        ]
    )
    writer = Writer(tmp_path, columns=columns, key=("id", "day"), partition_by=("n", "ok"))
    day = date(2026, 11, 21)
    rows = [{"id": i, "day": day, "n": i % 2, "ok": i < 2, "v": i} for i in range(4)]
    writer.insert(T1, pa.Table.from_pylist(rows, schema=columns))
    changed = {**rows[3], "v": 33}
    writer.change(T2, "n=1/ok=false", pa.Table.from_pylist([changed], schema=columns))
    assert read(tmp_path, positions=True) == [*rows[:3], changed]


def test_odd_partition_values_and_nulls_are_found_by_hudi(tmp_path: Path) -> None:
    cities = ["a b", "ü/ö", "100%", "x=y", "..", "[1]", "tab\there", None]
    table = trips(*((f"id{i}", 1, city, float(i)) for i, city in enumerate(cities)))
    Writer(tmp_path, columns=TRIPS, partition_by=("city",)).insert(T1, table)
    assert [row["id"] for row in read(tmp_path)] == table["id"].to_pylist()
    for i, city in enumerate(cities[:-1]):
        found = HudiTable(str(tmp_path)).read(HudiReadOptions(filters=[("city", "=", city or "")]))
        assert [row["id"] for batch in found for row in batch.to_pylist()] == [f"id{i}"]


def test_a_table_with_an_odd_name_opens(tmp_path: Path) -> None:
    Writer(tmp_path, columns=TRIPS, name="1 tägliche=fahrten: #1!").insert(T1, FIRST)
    assert read(tmp_path) == FIRST.to_pylist()


MOMENT = datetime(2026, 11, 21, 5, 30, 0, 123456, tzinfo=UTC)
EVERY_TYPE = pa.schema(
    [
        ("id", pa.string()),
        ("bool", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("millis", pa.timestamp("ms", "UTC")),
        ("micros", pa.timestamp("us", "UTC")),
        ("small", pa.decimal128(7, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.decimal128(5, 1))),
        (
            "struct",
            pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.string())])))]),
        ),
    ]
)


def every_type(key: str, n: int) -> dict[str, Any]:
    return {
        "id": key,
        "bool": n % 2 == 0,
        "int": n,
        "long": n << 40,
        "float": n / 2,
        "double": n / 3,
        "bytes": bytes([n, 0, 255]),
        "day": date(1969, 12, n),
        "millis": MOMENT.replace(microsecond=n * 1000),
        "micros": MOMENT.replace(microsecond=n),
        "small": Decimal(f"-{n}.25"),
        "wide": Decimal(f"{n}234567890123456789012345678.0123456789"),
        "list": [n, None, -n],
        "map": [("k", Decimal("1.5")), ("l", None)],
        "struct": {"x": n, "y": [{"z": "ü"}, None, {"z": None}]},
    }


def test_every_type_comes_back_from_base_files_and_logs(tmp_path: Path) -> None:
    columns = declared.stored(EVERY_TYPE)
    nulls = dict.fromkeys(EVERY_TYPE.names) | {"id": "d"}
    old = [every_type(key, n) for n, key in enumerate("abc", 1)] + [nulls]
    new = [every_type("b", 9), nulls | {"id": "a"}]
    writer = Writer(tmp_path, columns=columns)
    writer.insert(T1, pa.Table.from_pylist(old, schema=columns))
    writer.change(T2, "", pa.Table.from_pylist(new, schema=columns))
    assert read(tmp_path, positions=True) == [new[1], new[0], old[2], old[3]]
    assert avro_schema.from_avro(HudiTable(str(tmp_path)).get_schema_in_avro_str()) == columns
    assert json.loads(writer.avro)["name"] == "trips_record"
