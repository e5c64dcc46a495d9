"""Matching of source rows with live rows of the table: by record key through the key index, else by
a join of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import Int64Array, KeyHashes, UInt64Array
from indexes.predicate import And, Leaf, Or, Predicate, Unknown, columns, simplify
from mdt.arguments import named_column, own_spelling, shown, texts
from mdt.commit.conflicts import TABLE
from mdt.errors import Invalid, Unsupported
from mdt.filters.comparison import Comparison
from mdt.filters.expression import parse_condition
from mdt.filters.expression_tree import Field
from mdt.filters.leaves import leaf
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.keys.locate import find
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.scan.lookup import KeyRows, rows_at
from mdt.scan.matches import matching_rows, places_of
from mdt.schema.conform import conform
from mdt.schema.definition import TableDefinition
from mdt.schema.python_values import rows_of
from mdt.write.clauses import Condition
from mdt.write.merge_source import SOURCE, TARGET, Source, as_target, target_columns
from mdt.write.normalize import definition_paths, keyed_rows
from mdt.write.row_groups import by_value

_IN_VALUES_MAX = 1_000
"""Maximum number of distinct values in an IN predicate. More values become a range."""
NAMED_KEYS = 10
"""Keys that an error names."""
_DIGITS = 38
_NO_ROWS: Int64Array = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Pairs:
    """m rows of the source, each with its matching live row of the table.

    Attributes:
        source: int64[m], row numbers in the source.
        file: int64[m], file numbers of the table rows.
        position: int64[m], positions of the table rows in their files.
        ordering: uint64[m], ordering words of the table rows from key maps. None if key maps were
            not read.
        absent: Keys that are not live, in the form of :class:`mdt.commit.conflicts.Footprint`.
        refused: Places of rows that matched by key but not by the further conditions.
    """

    source: Int64Array
    file: Int64Array
    position: Int64Array
    ordering: UInt64Array | None = None
    absent: Mapping[str, KeyHashes] = field(default_factory=dict)
    refused: Int64Array = field(default_factory=lambda: _NO_ROWS)

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: npt.NDArray[Any]) -> Pairs:
        """Return a selection of the pairs, by a mask or by numbers."""
        ordering = None if self.ordering is None else self.ordering[rows]
        return Pairs(
            self.source[rows],
            self.file[rows],
            self.position[rows],
            ordering,
            self.absent,
            self.refused,
        )

    @classmethod
    def concat(cls, parts: Sequence[Pairs]) -> Pairs:
        """Concatenate pairs. The result has ordering words if all parts have them."""
        source, file, position = [_NO_ROWS], [_NO_ROWS], [_NO_ROWS]
        ordering = [np.empty(0, np.uint64)]
        for part in parts:
            source.append(part.source)
            file.append(part.file)
            position.append(part.position)
            if part.ordering is not None:
                ordering.append(part.ordering)
        ordering_words = np.concatenate(ordering) if len(ordering) > len(parts) else None
        return cls(
            np.concatenate(source), np.concatenate(file), np.concatenate(position), ordering_words
        )

    @property
    def places(self) -> Int64Array:
        """int64[m], file << 32 | position of the table rows."""
        return self.file << 32 | self.position


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """The parsed join condition of a merge.

    Attributes:
        equal: Column of the table -> equal column of the source.
        rest: Further conditions.
        key: Columns of the table for the lookup in the key index. Empty if it cannot be used.
        nulls: True if null partition columns are equal, as in an upsert.
        one_each: True if a source row that matches several live rows is refused.
    """

    equal: Mapping[str, str]
    rest: Condition
    key: tuple[str, ...]
    nulls: bool = False
    one_each: bool = False

    @property
    def is_by_key(self) -> bool:
        """True if the key index finds the rows."""
        return bool(self.key)

    def names_one_row(self, definition: TableDefinition) -> bool:
        """Return True if each source row matches at most a single row, and no concurrent insert can
        add another match while that row is live.
        """
        in_scope = definition.is_global or set(definition.partition_by) <= set(self.key)
        return self.is_by_key and in_scope and not definition.keys_repeat


def parse_on(
    on: Any, source: Source, definition: TableDefinition, *, one_each: bool = False
) -> JoinCondition:
    """Parse the ``on`` argument of a merge.

    Args:
        on: None for ``definition.unique_by``, names of common columns, or SQL with ``source.x =
            target.y`` joined by AND.
        one_each: For ``on=None``, refuse a source row that matches several live rows.

    Raises Invalid for unknown columns, Unsupported for SQL without an equality of two columns.
    """
    if on is None:
        equal = {name: name for name in definition.unique_by}
        _require_columns(source, equal)
        return JoinCondition(equal, Condition(), tuple(equal), nulls=True, one_each=one_each)
    column_names = definition.schema.names
    if not isinstance(on, str) or own_spelling(on, column_names) is not None:
        names = [named_column(name, column_names) for name in texts("on", on, "['id']")]
        if not names:
            raise Invalid(
                f"on={shown(on)} names no column of the table",
                hint=f"columns: {', '.join(column_names)}",
            )
        _require_columns(source, names)
        return _plan_join(dict(zip(names, names, strict=True)), [], frozenset(), definition)
    predicate, names_read = parse_condition(
        on, pa.schema([*source.schema, *as_target(definition.schema)])
    )
    equal, conditions = dict[str, str](), list[Predicate]()
    for part in _conjuncts(simplify(predicate)):
        sides = _parse_equality(part, source, definition)
        if sides is None or sides[1] in equal:
            conditions.append(part)
        else:
            equal[sides[1]] = sides[0]
    if not equal:
        raise Unsupported(
            f"on={on!r} equates no source column with a table column",
            hint="use source.x = target.y, and join further conditions by AND",
        )
    return _plan_join(equal, conditions, names_read, definition)


def _require_columns(source: Source, names: Iterable[str]) -> None:
    missing = set(names).difference(source.table.column_names)
    if missing:
        raise Invalid(f"rows are matched by {', '.join(sorted(missing))}, which the source lacks")


def _conjuncts(predicate: Predicate) -> Sequence[Predicate]:
    return predicate.children if isinstance(predicate, And) else (predicate,)


def _parse_equality(
    part: Predicate, source: Source, definition: TableDefinition
) -> tuple[str, str] | None:
    """Return (source column, table column) if ``part`` is an equality of the two, else None."""
    if not isinstance(part, Comparison) or part.op != "=" or part.is_negated:
        return None
    for left, right in (part.names, part.names[::-1]):
        source_name, target_name = left.removeprefix(SOURCE), right.removeprefix(TARGET)
        if left.startswith(SOURCE) and right.startswith(TARGET):
            plain = (
                source_name in source.table.column_names and target_name in definition.schema.names
            )
            return (source_name, target_name) if plain else None
    return None


def _plan_join(
    equal: Mapping[str, str],
    conditions: Sequence[Predicate],
    names: frozenset[str],
    definition: TableDefinition,
) -> JoinCondition:
    """Return the join condition. If all key columns are equated, rows are found by key and further
    equalities become conditions.
    """
    if not set(definition.key) <= equal.keys():
        return JoinCondition(equal, Condition(And(tuple(conditions)), names), ())
    key = dict.fromkeys(definition.key)
    if definition.partition_by and set(definition.partition_by) <= equal.keys():
        key |= dict.fromkeys(definition.partition_by)
    conditions = list(conditions)
    for target, source in equal.items():
        if target not in key:
            conditions.append(_equality(source, target))
            names |= {SOURCE + source, TARGET + target}
    return JoinCondition(equal, Condition(And(tuple(conditions)), names), tuple(key))


def _equality(source: str, target: str) -> Comparison:
    a, b = SOURCE + source, TARGET + target
    return Comparison(f"{a} = {b}", "=", Field(a), Field(b))


def pairs(
    metadata: Metadata,
    snapshot: Snapshot,
    source: Source,
    on: JoinCondition,
    *,
    threads: int,
    scanned: set[int],
) -> Pairs:
    """Return the matching pairs.

    Args:
        scanned: Output parameter. The numbers of the files read are added to it.
    """
    if on.is_by_key:
        candidates = _by_key(metadata, snapshot, source, on)
        scanned.update(np.unique(candidates.file).tolist())
    else:
        candidates = _by_columns(metadata, snapshot, source, on, threads, scanned)
    if on.rest.is_always:
        return candidates
    names = sorted(target_columns(on.rest.names))
    target = rows_at(
        metadata, snapshot, KeyRows(candidates.file, candidates.position), names, threads=threads
    )
    is_match = on.rest.holds(source.beside(on.rest.names, candidates.source, target))
    return replace(
        candidates.take(is_match),
        refused=candidates.places[~is_match] if on.is_by_key else _NO_ROWS,
    )


def _by_key(metadata: Metadata, snapshot: Snapshot, source: Source, on: JoinCondition) -> Pairs:
    definition = snapshot.definition
    key_columns = pa.table({name: source.table[on.equal[name]] for name in on.key})
    needed = definition.key if on.nulls else on.key
    rows = np.flatnonzero(all_valid(key_columns.select(list(needed))))
    if len(rows) < len(key_columns):
        key_columns = key_columns.take(pa.array(rows))
    declared, key_schema = map(_nullable, definition.forms(on.key))
    keyed = keyed_rows(conform(key_columns, declared, key_schema, definition.key), definition)
    partition = None
    if set(definition.partition_by) <= set(on.key) and not (definition.is_global and on.nulls):
        codes, names = definition_paths(keyed.table, definition)
        partition = np.array([*names, ""], np.object_)[codes]
    parts, absent = list[Pairs](), np.ones(len(rows), np.bool_)
    keys = keys_for(definition.key_index, keyed.keys, keyed.sort_keys)
    for hit in find(metadata, snapshot, keys, keyed.hashes, partition):
        absent[hit.key] = False
        parts.append(Pairs(rows[hit.key], hit.file, hit.position, hit.ordering))
    missing, absent_rows = dict[str, KeyHashes](), np.flatnonzero(absent)
    if len(absent_rows) and (partition is None or definition.is_global):
        missing[TABLE] = keyed.hashes.take(absent_rows)
    elif len(absent_rows):
        for code, rows_of_partition in by_value(
            absent_rows, codes[absent_rows].astype(np.int64)
        ).items():
            missing[names[code]] = keyed.hashes.take(rows_of_partition)
    return replace(Pairs.concat(parts), absent=missing)


def _nullable(columns: pa.Schema) -> pa.Schema:
    """Return columns that accept nulls, for rows that are only looked up."""
    return pa.schema([field.with_nullable(True) for field in columns])


def all_valid(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Return the rows without nulls -> bool[n]."""
    valid = np.ones(len(table), np.bool_)
    for column in table.columns:
        if column.null_count:
            valid &= np.asarray(column.is_valid())
    return valid


def _by_columns(
    metadata: Metadata,
    snapshot: Snapshot,
    source: Source,
    on: JoinCondition,
    threads: int,
    scanned: set[int],
) -> Pairs:
    names = list(on.equal)
    leaves = [
        _pruning_predicate(source, on.equal[name], name, snapshot.definition.schema)
        for name in names
    ]
    leaves += [
        part for part in _conjuncts(on.rest.predicate) if columns(part) and _is_of_target(part)
    ]
    predicate = simplify(And(tuple(map(without_prefix, leaves))))
    places = places_of(
        matching_rows(metadata, snapshot, predicate, threads=threads, scanned=scanned)
    )
    file, position = places >> 32, places & 0xFFFFFFFF
    target = rows_at(metadata, snapshot, KeyRows(file, position), names, threads=threads)
    source_side, target_side = {"source": np.arange(len(source))}, {"row": np.arange(len(file))}
    for name in names:
        source_side["=" + name], target_side["=" + name] = _comparable(
            source.column(on.equal[name]), target[name], name
        )
    keys = list(source_side)[1:]
    joined = pa.table(source_side).join(
        pa.table(target_side), keys, join_type="inner", use_threads=threads > 1
    )
    target_row, source_row = joined["row"].to_numpy(), joined["source"].to_numpy()
    order = np.lexsort((source_row, target_row))
    target_row, source_row = target_row[order], source_row[order]
    return Pairs(source_row, file[target_row], position[target_row])


def without_prefix(predicate: Predicate) -> Predicate:
    """Return the necessary condition for table rows alone, with the table's column names.
    Comparisons of expressions prove nothing and are dropped.
    """
    if isinstance(predicate, Unknown):
        return And(())
    if isinstance(predicate, Leaf):
        return _rename_columns(predicate)
    return simplify(type(predicate)(tuple(map(without_prefix, predicate.children))))


def _rename_columns(test: Leaf) -> Leaf:
    bare = [name.removeprefix(TARGET) for name in test.columns]
    renamed: Leaf = type(test)(
        bare[0], test.op, test.value, *([tuple(bare[1:])] if len(bare) > 1 else [])
    )
    return renamed


def _is_of_target(part: Predicate) -> bool:
    """Return True if the known leaves of a condition refer to table columns only."""
    if isinstance(part, (And, Or)):
        return all(map(_is_of_target, part.children))
    return isinstance(part, Leaf) and all(name.startswith(TARGET) for name in part.columns)


def _pruning_predicate(source: Source, name: str, target: str, schema: pa.Schema) -> Predicate:
    """Return an index-friendly predicate that table rows must meet to equal any source row."""
    column = source.column(name).drop_null()
    if not len(column):
        return Or(())
    target_type = schema.field(target).type
    if any(
        pa.types.is_floating(type) or pa.types.is_boolean(type)
        for type in (target_type, column.type)
    ):
        return And(())
    try:
        values = column.unique()
        if len(values) <= _IN_VALUES_MAX:
            return leaf(target, "in", tuple(values.to_pylist()), schema)
        bounds = pc.min_max(values).as_py()
        return And(
            (leaf(target, ">=", bounds["min"], schema), leaf(target, "<=", bounds["max"], schema))
        )
    except (ValueError, OverflowError, pa.ArrowException):
        # values that do not fit the column, or without an order
        return And(())


Column: TypeAlias = pa.ChunkedArray


def _comparable(a: Column, b: Column, name: str) -> tuple[Column, Column]:
    """Cast two columns to a common type that represents equal values by equal bits. Raises Invalid
    if there is none.
    """
    kinds = pa.types
    if _all_are((a, b), kinds.is_integer):
        return a.cast(pa.int64()), b.cast(pa.int64())
    if _all_are((a, b), kinds.is_integer, kinds.is_floating):
        return _bits(a), _bits(b)
    type = a.type
    if _all_are((a, b), kinds.is_integer, kinds.is_decimal):
        type = pa.decimal128(_DIGITS, max(_scale(a.type), _scale(b.type)))
    elif a.type != b.type and _all_are((a, b), kinds.is_timestamp):
        type = pa.timestamp("us", "UTC")
    elif a.type != b.type or kinds.is_nested(a.type):
        raise Invalid(f"column {name!r} is {b.type} in the table but {a.type} in the source")
    try:
        return a.cast(type), b.cast(type)
    except pa.ArrowException as error:
        raise Invalid(f"{name!r}: {a.type} and {b.type} cannot be joined: {error}") from error


def _all_are(columns: Sequence[Column], *kinds: Callable[[pa.DataType], bool]) -> bool:
    return all(any(kind(column.type) for kind in kinds) for column in columns)


def _scale(type: pa.DataType) -> int:
    return type.scale if pa.types.is_decimal(type) else 0


def _bits(column: Column) -> Column:
    """Return numbers as the bits of doubles, with a single zero and a single NaN."""
    number = np.asarray(pc.fill_null(pc.cast(column, pa.float64(), safe=False), 0.0)) + 0.0
    number[np.isnan(number)] = np.nan
    return pa.chunked_array([pa.array(number.view(np.int64), mask=np.asarray(column.is_null()))])


def refuse_rows_with_the_same_key(source: Source, on: JoinCondition, matches: Pairs) -> None:
    """Raise Unsupported if a source row matches several rows of the table."""
    numbers, counts = np.unique(matches.source, return_counts=True)
    repeated = numbers[counts > 1]
    if len(repeated):
        names = [on.equal[name] for name in on.key]
        keys = rows_of(source.table.select(names).take(pa.array(repeated[:NAMED_KEYS])))
        raise Unsupported(
            f"the keys of {len(repeated)} rows to change are those of other live rows, too: {keys}",
            hint=(
                "use only conditions that compare columns with constants, and only constants as new"
                " values, or make the keys unique with an upsert"
            ),
        )


def refuse_two_rows_for_one(
    metadata: Metadata, snapshot: Snapshot, matches: Pairs, key_of: Sequence[str]
) -> None:
    """Raise Invalid if several source rows match the same table row.

    Args:
        key_of: Columns that identify the rows in the message.
    """
    places, counts = np.unique(matches.places, return_counts=True)
    twice = places[counts > 1]
    if not len(twice):
        return
    shown_places = twice[:NAMED_KEYS]
    rows = rows_at(
        metadata,
        snapshot,
        KeyRows(shown_places >> 32, shown_places & 0xFFFFFFFF),
        list(key_of),
        threads=1,
    )
    shown_keys = rows_of(rows) if len(key_of) > 1 else [row[key_of[0]] for row in rows_of(rows)]
    raise Invalid(
        f"{len(twice)} rows of the table match several rows of the source: {shown_keys}",
        hint=(
            "leave one row of the source for each row of the table, in SQL by GROUP BY, or use"
            " t.merge(…, dedupe=True) to keep the row with the largest ordering value for each key"
        ),
    )
