"""Makes the tables of TPC-DS, the queries and their answers: ``python generate.py FOLDER SCALE``,
in an environment with duckdb and its extension.

Below the folder: ``<table>.parquet``, ``queries.json`` (texts by number, as the extension has them)
and ``answers/<number>.parquet``, by duckdb. Nothing is loaded from the network while it runs, and
nothing here is imported but duckdb.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb

OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
PACKAGE = "duckdb_extension_tpcds"
NULLS = "nulls_first_on_asc_last_on_desc"
"""Where a query does not say where nulls stand, they stand where Spark puts them."""


def extension() -> Path:
    """Return the file of the extension that is installed beside duckdb."""
    found = find_spec(PACKAGE)
    assert found is not None and found.origin is not None, f"{PACKAGE} is not installed"
    return next(Path(found.origin).parent.rglob("tpcds.duckdb_extension"))


def generate(folder: Path, scale: float) -> None:
    """Write tables, queries and answers below ``folder``."""
    (folder / "answers").mkdir(parents=True, exist_ok=True)
    with duckdb.connect(config=OFFLINE) as base:
        base.execute(f"load '{extension()}'")
        base.execute(f"call dsdgen(sf = {scale})")
        base.execute(f"set default_null_order = '{NULLS}'")
        for (name,) in base.execute("select table_name from duckdb_tables()").fetchall():
            base.execute(f"copy {name} to '{folder / name}.parquet' (format parquet)")
        texts = dict(base.execute("select query_nr, query from tpcds_queries()").fetchall())
        (folder / "queries.json").write_text(json.dumps(texts), encoding="utf-8")
        for number, text in texts.items():
            query = text.strip().rstrip(";")
            base.execute(f"copy ({query}) to '{folder}/answers/{number}.parquet' (format parquet)")


if __name__ == "__main__":
    generate(Path(sys.argv[1]), float(sys.argv[2]))
