"""Runs in the environment of Hudi's bundle: calls methods of tables that :mod:`hudi_session` names.

``python hudi_server.py bundle.jar folder zone``. Requests and replies are lines of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from hudi_table import HudiTable, session


def carry_out(spark, folder, tables, request):
    """Return the value of a request."""
    path = Path(request["path"])
    if "create" in request:
        tables[path] = HudiTable(spark, folder, path.name, *request["create"], path=path)
        return None
    value = getattr(tables[path], request["method"])(*request["arguments"], **request["named"])
    return value if isinstance(value, str | int | float) else None


def main(jar, folder, zone):
    """Answer requests until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark and Hudi print to standard output
    spark = session(jar, Path(folder), zone)
    tables = {}
    for line in sys.stdin:
        try:
            reply = {"value": carry_out(spark, Path(folder), tables, json.loads(line))}
        except ConnectionError:
            raise  # the JVM has ended
        except Exception as error:  # noqa: BLE001 - the caller decides about errors of Hudi
            traceback.print_exc()
            causes = [line for line in str(error).splitlines() if "Caused by" in line]
            reply = {"error": "\n".join([str(error)[:1000], *causes])[:4000]}
        print(json.dumps(reply), file=replies, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
