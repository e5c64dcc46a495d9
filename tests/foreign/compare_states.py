"""Compare the states that ``make_states.py`` has made with what we read: rows now and in the past,
and the number of rows that pass a filter.

``python tests/foreign/compare_states.py folder`` in our own environment. See README.md.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import mdt
from mdt.errors import MdtError


def plain(value):
    """Return a value without time zones, which Spark leaves out of timestamps."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if getattr(value, "tzinfo", None) is not None:
        return value.replace(tzinfo=None)
    return value


def bag(rows: pa.Table) -> Counter[str]:
    return Counter(
        repr({name: plain(one) for name, one in row.items()}) for row in rows.to_pylist()
    )


def compared(table: Path, rows: Path, as_of: str | None) -> str:
    """Return "equal", the refusal, or the first rows that differ."""
    expected = pq.read_table(rows)
    try:
        found = mdt.open(table).scan(columns=expected.column_names, as_of=as_of).to_arrow()
    except MdtError as error:
        return f"{type(error).__name__}: {error.message[:150]}"
    ours, theirs = bag(found), bag(expected)
    if ours == theirs:
        return "equal"
    return f"DIFFERENT: ours {[*(ours - theirs)][:1]}, Hudi's {[*(theirs - ours)][:1]}"


def main(folder: Path) -> int:
    """Compare all states below ``folder``, and return how many differ."""
    results: Counter[str] = Counter()
    for about in sorted(folder.glob("*/about.json")):
        state = about.parent
        past = json.loads(about.read_text())["rows_as_of"]
        cases: list[tuple[str | None, str]] = [(None, "rows.parquet")]
        cases += [(at, name) for at, name in past.items() if isinstance(name, str)]
        for as_of, name in cases:
            result = compared(state / "table", state / name, as_of)
            results[result.partition(":")[0]] += 1
            if result != "equal":
                print(state.name, as_of or "now", result, flush=True)
    print(dict(results))
    return results["DIFFERENT"]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
