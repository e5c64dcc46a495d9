"""Everything that imports pyspark: tables as native Spark relations.

pyspark is an extra of this package. If it is missing, importing this package raises an error with
the install command.
"""

from mdt.errors import Unsupported

PYSPARK_MAJOR_MIN = 4
"""The first version that returns whole DataFrames as Arrow tables, which this package requires."""

_HINT = "pip install 'pyspark-mdt[spark]'"

try:
    import pyspark
except ImportError as error:
    raise Unsupported(f"pyspark is required and cannot be imported: {error}", hint=_HINT) from error

if int(pyspark.__version__.partition(".")[0]) < PYSPARK_MAJOR_MIN:
    raise Unsupported(
        f"pyspark {pyspark.__version__} is too old: {PYSPARK_MAJOR_MIN}.0 or newer is required",
        hint=_HINT,
    )
