"""Makes the tables of ``hudi_kinds`` in the environment of Hudi's bundle.

``python make_states.py bundle.jar folder [name ...]``. An older release of Hudi makes the tables in
the newest version that it knows, and fails to make some. See README.md.
"""

from __future__ import annotations

import shutil
import sys
import time
import traceback
from pathlib import Path

from hudi_kinds import TABLES
from hudi_table import HudiTable, session

NEWEST = {"0.15": 6, "1.0": 8}
"""Release of Hudi -> the newest table version that it knows, if that is not 9."""


def main(jar, folder, *names):
    """Make the tables whose names contain any of ``names``, or all. Write errors to files."""
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    release = Path(jar).stem.rpartition("-")[2].rpartition(".")[0]
    spark = session(jar, folder / ".live")
    for name, (version, kind, options, history) in TABLES.items():
        if names and not any(part in name for part in names):
            continue
        for old in [*folder.glob(f"{name}-*"), folder / ".live" / name]:
            shutil.rmtree(old, ignore_errors=True)
        failed = folder / f"{name}.failed"
        failed.unlink(missing_ok=True)
        version = min(version, NEWEST.get(release, 9))
        table = HudiTable(spark, folder, name, version, kind, options)
        started = time.monotonic()
        try:
            history(table)
        except ConnectionError:
            raise  # the JVM has ended
        except Exception as error:  # noqa: BLE001 - the other tables are still made
            failed.write_text(f"{error}\n{traceback.format_exc()}")
            print(f"{name} failed: {str(error)[:300]}", flush=True)
        print(f"{name} took {time.monotonic() - started:.0f} s", flush=True)
        shutil.rmtree(table.path, ignore_errors=True)
    spark.stop()
    shutil.rmtree(folder / ".live", ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
