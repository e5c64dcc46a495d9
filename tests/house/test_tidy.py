"""The tree keeps the rules of tests/tidy.py, and each rule fires on a planted breach."""

from __future__ import annotations

from pathlib import Path

import density
import pytest
import tidy

ROOT = Path(__file__).resolve().parents[2]
EVERYWHERE = ("mdt", "indexes", "benchmarks", "tests")
TEXTS = ("pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", ".ci/run")
DOC = '"""What it is."""\n'
LONG_BODY = "\n".join(f"    value_{i} = {i}" for i in range(60))


@pytest.fixture(scope="module")
def everything() -> list[tidy.Module]:
    """Every module, read and parsed once for all rules."""
    return tidy.load(ROOT, *EVERYWHERE)


def listed(breaches: list[str]) -> str:
    return "\n".join(["", *breaches])


@pytest.mark.parametrize("rule", [*tidy.PRODUCT_RULES, density.density], ids=lambda rule: rule.__name__)
def test_mdt_and_indexes_keep(rule: tidy.Rule, everything: list[tidy.Module]) -> None:
    product = [module for module in everything if module.path.startswith(("mdt/", "indexes/"))]
    breaches = tidy.check(product, rule)
    assert not breaches, listed(breaches)


@pytest.mark.parametrize("rule", tidy.GENERAL_RULES, ids=lambda rule: rule.__name__)
def test_every_source_file_keeps(rule: tidy.Rule, everything: list[tidy.Module]) -> None:
    breaches = tidy.check(everything, rule)
    assert not breaches, listed(breaches)


def test_every_java_file_keeps_its_rule() -> None:
    sources = tidy.load_java(ROOT, "mdt")
    assert len(sources) > 10
    breaches = tidy.check(sources, tidy.java)
    assert not breaches, listed(breaches)


@pytest.mark.parametrize("name", TEXTS)
def test_project_files_name_no_machine(name: str) -> None:
    breaches = tidy.check([tidy.Module(name, (ROOT / name).read_text(encoding="utf-8"))], tidy.machine_paths)
    assert not breaches, listed(breaches)


def test_every_package_is_listed_in_pyproject() -> None:
    listed_packages = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = {file.parent.relative_to(ROOT) for top in ("mdt", "indexes") for file in (ROOT / top).rglob("*.py")}
    missing = [p.as_posix() for p in packages if f'"{".".join(p.parts)}"' not in listed_packages]
    assert not missing, f"add to [tool.setuptools] packages: {missing}"


BREACHES = {
    "lower module imports a higher one": (tidy.layers, {"mdt/errors.py": "import mdt.table", "mdt/table.py": ""}),
    "from-import of a higher module": (
        tidy.layers,
        {"mdt/metadata/codec.py": "from mdt import table", "mdt/table.py": ""},
    ),
    "import hidden in a function": (
        tidy.layers,
        {"mdt/metadata/codec.py": "def f():\n    from mdt.table import Table"},
    ),
    "import inside a function": (tidy.late_imports, {"mdt/metadata/codec.py": "def f():\n    import json"}),
    "import of the facade": (tidy.layers, {"mdt/metadata/codec.py": "import mdt"}),
    "relative import of a higher module": (tidy.layers, {"mdt/hudi/timeline.py": "from ..table import Table"}),
    "import under TYPE_CHECKING": (
        tidy.layers,
        {"mdt/metadata/codec.py": "if TYPE_CHECKING:\n    from mdt.table import T"},
    ),
    "module without a layer": (tidy.layers, {"mdt/novelty.py": ""}),
    "index imports the table": (tidy.layers, {"indexes/bloom.py": "from mdt.errors import Corrupt"}),
    "cycle within a row": (
        tidy.cycles,
        {
            "mdt/metadata/codec.py": "from mdt.metadata import paths",
            "mdt/metadata/paths.py": "import mdt.metadata.codec",
        },
    ),
    "pickle": (tidy.banned_imports, {"mdt/stores/storage.py": "import pickle"}),
    "pandas": (tidy.banned_imports, {"mdt/scan/reader.py": "from pandas import DataFrame"}),
    "os beside storage": (tidy.banned_imports, {"mdt/metadata/codec.py": "import os.path"}),
    "clock in an index": (tidy.banned_imports, {"indexes/bloom.py": "from time import monotonic"}),
    "tempfile beside Spark": (tidy.banned_imports, {"mdt/write/files.py": "import tempfile"}),
    "Spark outside mdt/engines/spark": (
        tidy.banned_imports,
        {"mdt/table.py": "def f():\n    from pyspark.sql import Row"},
    ),
    "hypothesis in an index": (tidy.banned_imports, {"indexes/bloom.py": "import hypothesis"}),
    "eval": (tidy.banned_calls, {"mdt/stores/storage.py": "eval('1')"}),
    "shell": (tidy.banned_calls, {"mdt/cli/main.py": "import os\nos.system('ls')"}),
    "open": (tidy.banned_calls, {"mdt/metadata/codec.py": "open('x')"}),
    "clock by datetime": (tidy.banned_calls, {"mdt/commit/publish.py": "datetime.now(UTC)"}),
    "randomness by numpy": (tidy.banned_calls, {"indexes/bloom.py": "rng = np.random.default_rng()"}),
    "pickle by numpy": (tidy.banned_calls, {"mdt/stores/storage.py": "np.load(x, allow_pickle=True)"}),
    "name of an instant": (tidy.timeline_names, {"mdt/commit/publish.py": "name = f'{time}.commit'"}),
    "name of a pending instant": (
        tidy.timeline_names,
        {"mdt/commit/publish.py": "name = time + '.deltacommit.inflight'"},
    ),
    "path in Hudi's directory": (tidy.timeline_names, {"mdt/services/check.py": "path = f'{paths.HUDI}/{name}'"}),
    "path in Hudi's directory, spelled out": (tidy.timeline_names, {"mdt/services/check.py": "x = '.hoodie/timeline'"}),
    "one layout by its name": (tidy.timeline_names, {"mdt/table.py": "from mdt.hudi.v6 import Version6"}),
    "long module": (tidy.module_lines, {"mdt/metadata/codec.py": "x = 1\n" * 501}),
    "long function": (tidy.function_lines, {"tests/test_x.py": f"def f():\n{LONG_BODY}"}),
    "many middling functions": (
        tidy.share_of_lengths,
        {"mdt/metadata/codec.py": "\n".join(f"def f{i}():\n" + "    x = 1\n" * 9 for i in range(3))},
    ),
    "conditional inside another": (
        density.density,
        {"mdt/plan/planner.py": "y = 1\n" * 50 + "x = 1 if a else 2 if b else 3\n" + "y = 1\n" * 50},
    ),
    "function of many parts": (
        density.density,
        {"mdt/metadata/codec.py": "def f(a):\n" + "    a = [b for b in a]\n" * (density.DENSE_PARTS_MAX + 1)},
    ),
    "many comprehensions": (
        density.density,
        {"mdt/metadata/codec.py": "x = 1\n" * 960 + "x = [y for y in x]\n" * 40},
    ),
    "many comprehensions in a room that had few": (
        density.density,
        {"mdt/hudi/schema.py": "x = 1\n" * 970 + "x = [y for y in x]\n" * 30},
    ),
    "module without docstring": (tidy.docstrings, {"mdt/metadata/codec.py": "x = 1"}),
    "class without docstring": (tidy.docstrings, {"mdt/metadata/codec.py": DOC + "class Frame:\n    x = 1"}),
    "function without docstring": (tidy.docstrings, {"mdt/metadata/codec.py": DOC + "def f():\n    return 1"}),
    "method without docstring": (
        tidy.docstrings,
        {"mdt/metadata/codec.py": DOC + f"class Frame:\n    {DOC}    def f(self):\n        return 1"},
    ),
    "class named Manager": (tidy.names, {"mdt/metadata/codec.py": "class FrameManager:\n    pass"}),
    "class named Base": (tidy.names, {"mdt/metadata/codec.py": "class BaseFrame:\n    pass"}),
    "module named utils": (tidy.names, {"mdt/hudi/string_utils.py": ""}),
    "unfinished work": (tidy.comments, {"mdt/metadata/codec.py": "# TO" + "DO: later"}),
    "assignment switched off": (tidy.comments, {"mdt/metadata/codec.py": "x = 1  # y = f(x)"}),
    "block switched off": (tidy.comments, {"mdt/metadata/codec.py": "# if x > 1:\n#     f(x)"}),
    "attribute of a frame": (tidy.private_names, {"mdt/engines/spark/frame.py": "java = frame._jdf"}),
    "attribute of a context": (tidy.private_names, {"tests/test_x.py": "spark.sparkContext._gateway.jvm.System.gc()"}),
    "attribute by its name": (tidy.private_names, {"mdt/scan/reader.py": "getattr(file, '_closed')"}),
    "attribute that is patched": (tidy.private_names, {"tests/test_x.py": "setattr(pq, '_filesystem', 1)"}),
    "private attribute that a private module overrides": (
        tidy.private_names,
        {"mdt/engines/spark/private.py": "def _jdf():\n    return 1", "mdt/table.py": "frame._jdf"},
    ),
    "private module": (tidy.private_names, {"mdt/scan/reader.py": "import pyarrow._parquet"}),
    "private module by another name": (tidy.private_names, {"mdt/table.py": "from pyspark.sql.pandas import types"}),
    "private function": (tidy.private_names, {"tests/test_x.py": "from sqlglot.parser import _apply_typed_parse"}),
    "path of a machine": (tidy.machine_paths, {"mdt/metadata/codec.py": "x = '/" + "home/someone/table'"}),
}


JAVA = "// What it is.\npackage mdt;\n\nfinal class A {\n    int a;\n}\n"
JAVA_BREACHES = {
    "a long file": JAVA + "//\n" * 300,
    "a file without a comment": JAVA.partition("\n")[2],
    "a class in a class": JAVA.replace("    int a;", "    static class B {\n    }"),
    "a class of another name": JAVA.replace("class A", "class B"),
}


@pytest.mark.parametrize("text", JAVA_BREACHES.values(), ids=JAVA_BREACHES.keys())
def test_the_rule_for_java_fires_on(text: str) -> None:
    assert not tidy.check([tidy.Module("mdt/A.java", JAVA)], tidy.java)
    assert tidy.check([tidy.Module("mdt/A.java", text)], tidy.java)


def planted(root: Path, files: dict[str, str]) -> list[tidy.Module]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n", encoding="utf-8")
    return tidy.load(root, *EVERYWHERE)


@pytest.mark.parametrize(("rule", "files"), BREACHES.values(), ids=BREACHES.keys())
def test_rule_fires_on(rule: tidy.Rule, files: dict[str, str], tmp_path: Path) -> None:
    assert tidy.check(planted(tmp_path, files), rule)


ALLOWED = {
    "private names of one's own": (
        tidy.private_names,
        {"mdt/a.py": "class A:\n    def _f(self):\n        self._x = 1", "tests/test_a.py": "A()._f()\nA()._x"},
    ),
    "fields of a named tuple": (tidy.private_names, {"mdt/a.py": "x._replace(a=1)"}),
    "private names in the private module": (tidy.private_names, {"mdt/engines/spark/private.py": "frame._jdf._x"}),
    "import from a lower layer": (tidy.layers, {"mdt/table.py": "from mdt import errors", "mdt/errors.py": ""}),
    "import inside a function of the facade": (
        tidy.late_imports,
        {"mdt/table/reading.py": "def f():\n    import json"},
    ),
    "os in the storage": (tidy.banned_imports, {"mdt/stores/local.py": "import os\nimport time"}),
    "Spark in mdt/engines/spark": (tidy.banned_imports, {"mdt/engines/spark/engine.py": "import pyspark, tempfile"}),
    "methods called open and compile": (tidy.banned_calls, {"mdt/table.py": "store.open(1)\nre.compile('a')"}),
    "Spark in annotations": (
        tidy.banned_imports,
        {"mdt/table.py": "if TYPE_CHECKING:\n    from pyspark.sql import Row"},
    ),
    "names of instants in a layout": (tidy.timeline_names, {"mdt/hudi/v9.py": "name = f'{time}.commit'"}),
    "a layout where layouts are known": (
        tidy.timeline_names,
        {"mdt/hudi/layout.py": "from mdt.hudi import v6", "mdt/hudi/v6.py": ""},
    ),
    "words about instants": (
        tidy.timeline_names,
        {
            "mdt/metadata/paths.py": "x = '.hoodie/hoodie.properties'",
            "mdt/logs.py": "x = 'mdt.commit'\ny = 'ends in .inflight or so'",
        },
    ),
    "seeded generator": (tidy.banned_calls, {"indexes/testing.py": "rng = np.random.default_rng(7)"}),
    "own function called open": (tidy.banned_calls, {"mdt/table.py": "def open(path):\n    return 1\nopen('x')"}),
    "prose": (
        tidy.comments,
        {
            "mdt/metadata/codec.py": "# Why: return early, the rest is empty.\n# note: this\n# import order matters\nx = 1"
        },
    ),
    "pragma": (tidy.comments, {"mdt/metadata/codec.py": "import x  # type: ignore[import]\nx = 1  # noqa: E501"}),
    "override of a documented method": (
        tidy.docstrings,
        {
            "mdt/metadata/codec.py": f"{DOC}class A:\n    {DOC}    def f(self):\n        {DOC}\n"
            f"class B(A):\n    {DOC}    def f(self):\n        return 1"
        },
    ),
    "base file": (tidy.names, {"mdt/hudi/base_file.py": "class BaseFile:\n    pass"}),
    "path of the reader's own": (tidy.machine_paths, {"mdt/metadata/codec.py": "x = 'warehouse/tmp/x'"}),
}


@pytest.mark.parametrize(("rule", "files"), ALLOWED.values(), ids=ALLOWED.keys())
def test_rule_allows(rule: tidy.Rule, files: dict[str, str], tmp_path: Path) -> None:
    breaches = tidy.check(planted(tmp_path, files), rule)
    assert not breaches, listed(breaches)
