"""Everything that imports pyspark: the table as a native Spark relation.

pyspark is an extra of this package, so whoever comes here first learns what to install.
"""

from mdt.errors import Unsupported

PYSPARK_MAJOR_MIN = 4
"""The first version that hands whole DataFrames over as Arrow tables, on which everything here is
built.
"""

_HINT = "pip install 'pyspark-mdt[spark]'"

try:
    import pyspark
except ImportError as error:
    raise Unsupported(
        f"Spark is asked for, and pyspark cannot be imported: {error}", hint=_HINT
    ) from error

if int(pyspark.__version__.partition(".")[0]) < PYSPARK_MAJOR_MIN:
    raise Unsupported(
        f"pyspark {pyspark.__version__} is too old: {PYSPARK_MAJOR_MIN}.0 or newer is needed",
        hint=_HINT,
    )
