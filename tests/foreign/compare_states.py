"""Compare the rows of the states that ``make_states.py`` has made with the rows that mdt reads: the
newest rows, rows of the past, and rows that pass a filter.

``python tests/foreign/compare_states.py folder`` in our own environment. See README.md.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import mdt
from mdt.errors import MdtError

EQUAL = "equal"
OPERATION = "_hoodie_operation"
"""Hudi's sixth meta column, which our tables do not have."""
TEXT_IN_HUDI = {"time_paths": "v", "time_paths_cow": "v"}
"""Table -> column from which its key generator derives times. Hudi's reader returns it as text."""


def plain(value: object) -> object:
    """Return a value with times in UTC and without zones, because Spark's timestamps have none."""
    if isinstance(value, dict):
        return {name: plain(child) for name, child in value.items()}
    if isinstance(value, list):
        return [plain(child) for child in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def bag(rows: pa.Table) -> Counter[str]:
    return Counter(
        repr({name: plain(value) for name, value in row.items()}) for row in rows.to_pylist()
    )


def difference(ours: pa.Table, hudis: pa.Table) -> str:
    """Return EQUAL, or the first row that only one side has, in its columns that differ."""
    our_rows, hudis_rows = bag(ours), bag(hudis)
    if our_rows == hudis_rows:
        return EQUAL
    lines = [f"DIFFERENT: {len(ours)} rows, Hudi has {len(hudis)}"]
    if ours.column_names != hudis.column_names:
        lines.append(f"columns {ours.column_names}, Hudi's {hudis.column_names}")
    for name in ours.column_names:
        column, other = bag(ours.select([name])), bag(hudis.select([name]))
        if column != other:
            lines.append(f"ours {[*(column - other)][:2]}, Hudi's {[*(other - column)][:2]}")
    return "; ".join(lines)


def literal(value: object) -> str:
    """Return a value as text in a filter."""
    if isinstance(value, datetime):
        return f"timestamp '{value.replace(tzinfo=None)}'"
    if isinstance(value, date):
        return f"date '{value}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def filters(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield filters at the median of each column that can be ordered, and the rows that pass."""
    kinds = pa.types
    for name in rows.column_names:
        type = rows.schema.field(name).type
        tests = (kinds.is_integer, kinds.is_string, kinds.is_date, kinds.is_decimal)
        if any(test(type) for test in (*tests, kinds.is_timestamp)):
            values = sorted(rows[name].drop_null().to_pylist())
            if values:
                limit = values[len(values) // 2]
                passing = rows.filter(pc.field(name) >= pa.scalar(limit, type))
                yield f"{name} >= {literal(limit)}", passing
                yield f"{name} is null", rows.filter(pc.field(name).is_null())


def compared(table: Path, rows: Path, as_of: str | None, text_column: str = "") -> str:
    """Return EQUAL, the error of mdt, or the first difference.

    Args:
        rows: Path of Hudi's rows.
        text_column: A column that Hudi returns as text regardless of its type, or "".
    """
    hudis = pq.read_table(rows)
    if OPERATION in hudis.column_names:
        hudis = hudis.drop_columns([OPERATION])
    try:
        opened = mdt.open(table)
        ours = opened.scan(columns=hudis.column_names, as_of=as_of).to_arrow()
        if text_column:
            place = ours.schema.get_field_index(text_column)
            ours = ours.set_column(place, text_column, ours[text_column].cast(pa.string()))
        result = difference(ours, hudis)
        if result != EQUAL or as_of is not None or text_column:
            return result
        for where, passing in filters(hudis):
            result = difference(opened.scan(where, hudis.column_names).to_arrow(), passing)
            if result != EQUAL:
                return f"{result} where {where}"
    except MdtError as error:
        return f"{type(error).__name__}: {error.message[:150]}"
    except Exception as error:  # noqa: BLE001 - the other states are still compared
        return f"DIFFERENT: raised {error!r}"[:400]
    return EQUAL


def comparisons(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield each state of a table, also as of its instants, and the result of the comparison."""
    for about in sorted(folder.glob(f"{name}-*/about.json")):
        state = about.parent
        past = json.loads(about.read_text())["rows_as_of"]
        cases: list[tuple[str | None, str]] = [(None, "rows.parquet")]
        cases += [(at, file) for at, file in past.items() if isinstance(file, str)]
        for as_of, file in cases:
            column = TEXT_IN_HUDI.get(name, "")
            result = compared(state / "table", state / file, as_of, column)
            yield f"{state.name} {as_of or 'now'}", result


def main(folder: Path) -> int:
    """Compare all states below ``folder``, and return how many differ."""
    results: Counter[str] = Counter()
    for name in sorted(
        {path.parent.name.partition("-")[0] for path in folder.glob("*/about.json")}
    ):
        for state, result in comparisons(folder, name):
            results[result.partition(":")[0]] += 1
            if result != EQUAL:
                print(state, result, flush=True)
    print(dict(results))
    return results["DIFFERENT"]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
