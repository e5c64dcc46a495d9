"""The tree keeps the rules of tests/support/tidy.py, and each rule fires on a planted breach."""

from __future__ import annotations

import ast
from pathlib import Path

import density
import pytest
import tidy

from mdt import late

ROOT = Path(__file__).resolve().parents[2]
EVERYWHERE = ("mdt", "indexes", "benchmarks", "tests")
TEXTS = ("pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", ".ci/run")
DOC = '"""What it is."""\n'


@pytest.fixture(scope="module")
def everything() -> list[tidy.Module]:
    """Every module, read and parsed once for all rules."""
    return tidy.load(ROOT, *EVERYWHERE)


def listed(breaches: list[str]) -> str:
    return "\n".join(["", *breaches])


@pytest.mark.parametrize(
    "rule", [*tidy.PRODUCT_RULES, density.density], ids=lambda rule: rule.__name__
)
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
    breaches = tidy.check(
        [tidy.Module(name, (ROOT / name).read_text(encoding="utf-8"))], tidy.machine_paths
    )
    assert not breaches, listed(breaches)


def test_every_package_is_listed_in_pyproject() -> None:
    listed_packages = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = {
        file.parent.relative_to(ROOT)
        for top in ("mdt", "indexes")
        for file in (ROOT / top).rglob("*.py")
    }
    missing = [p.as_posix() for p in packages if f'"{".".join(p.parts)}"' not in listed_packages]
    assert not missing, f"add to [tool.setuptools] packages: {missing}"


BREACHES = {
    "name of an instant": (
        tidy.timeline_names,
        {"mdt/commit/publish.py": "name = f'{time}.commit'"},
    ),
    "name of a pending instant": (
        tidy.timeline_names,
        {"mdt/commit/publish.py": "name = time + '.deltacommit.inflight'"},
    ),
    "path in Hudi's directory": (
        tidy.timeline_names,
        {"mdt/services/checking/check.py": "path = f'{paths.HUDI}/{name}'"},
    ),
    "path in Hudi's directory, spelled out": (
        tidy.timeline_names,
        {"mdt/services/checking/check.py": "x = '.hoodie/timeline'"},
    ),
    "long module": (tidy.module_lines, {"mdt/metadata/log/codec.py": "x = 1\n" * 701}),
    "conditional inside another": (
        density.density,
        {
            "mdt/plan/planner.py": (
                "y = 1\n" * 50 + "x = 1 if a else 2 if b else 3\n" + "y = 1\n" * 50
            )
        },
    ),
    "function of many parts": (
        density.density,
        {
            "mdt/metadata/log/codec.py": (
                "def f(a):\n" + "    a = [b for b in a]\n" * (density.DENSE_PARTS_MAX + 1)
            )
        },
    ),
    "many comprehensions": (
        density.density,
        {"mdt/metadata/log/codec.py": "x = 1\n" * 960 + "x = [y for y in x]\n" * 40},
    ),
    "many comprehensions in a room that had few": (
        density.density,
        {"mdt/hudi/avro_schema.py": "x = 1\n" * 970 + "x = [y for y in x]\n" * 30},
    ),
    "module without docstring": (tidy.docstrings, {"mdt/metadata/log/codec.py": "x = 1"}),
    "class without docstring": (
        tidy.docstrings,
        {"mdt/metadata/log/codec.py": DOC + "class Frame:\n    x = 1"},
    ),
    "function without docstring": (
        tidy.docstrings,
        {"mdt/metadata/log/codec.py": DOC + "def f():\n    return 1"},
    ),
    "method without docstring": (
        tidy.docstrings,
        {
            "mdt/metadata/log/codec.py": (
                DOC + f"class Frame:\n    {DOC}    def f(self):\n        return 1"
            )
        },
    ),
    "attribute of a frame": (
        tidy.private_names,
        {"mdt/engines/spark/frame.py": "java = frame._jdf"},
    ),
    "attribute of a context": (
        tidy.private_names,
        {"tests/test_x.py": "spark.sparkContext._gateway.jvm.System.gc()"},
    ),
    "attribute by its name": (
        tidy.private_names,
        {"mdt/scan/reader.py": "getattr(file, '_closed')"},
    ),
    "attribute that is patched": (
        tidy.private_names,
        {"tests/test_x.py": "setattr(pq, '_filesystem', 1)"},
    ),
    "private attribute that a private module overrides": (
        tidy.private_names,
        {"mdt/engines/spark/private.py": "def _jdf():\n    return 1", "mdt/table.py": "frame._jdf"},
    ),
    "private module": (tidy.private_names, {"mdt/scan/reader.py": "import pyarrow._parquet"}),
    "private module by another name": (
        tidy.private_names,
        {"mdt/table.py": "from pyspark.sql.pandas import types"},
    ),
    "private function": (
        tidy.private_names,
        {"tests/test_x.py": "from sqlglot.parser import _apply_typed_parse"},
    ),
    "path of a machine": (
        tidy.machine_paths,
        {"mdt/metadata/log/codec.py": "x = '/" + "home/someone/table'"},
    ),
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
        {
            "mdt/a.py": "class A:\n    def _f(self):\n        self._x = 1",
            "tests/test_a.py": "A()._f()\nA()._x",
        },
    ),
    "fields of a named tuple": (tidy.private_names, {"mdt/a.py": "x._replace(a=1)"}),
    "private names in the private module": (
        tidy.private_names,
        {"mdt/engines/spark/private.py": "frame._jdf._x"},
    ),
    "names of instants in a layout": (
        tidy.timeline_names,
        {"mdt/hudi/v9.py": "name = f'{time}.commit'"},
    ),
    "words about instants": (
        tidy.timeline_names,
        {
            "mdt/metadata/files/paths.py": "x = '.hoodie/hoodie.properties'",
            "mdt/logs.py": "x = 'mdt.commit'\ny = 'ends in .inflight or so'",
        },
    ),
    "override of a documented method": (
        tidy.docstrings,
        {
            "mdt/metadata/log/codec.py": (
                f"{DOC}class A:\n    {DOC}    def f(self):\n        {DOC}\n"
                f"class B(A):\n    {DOC}    def f(self):\n        return 1"
            )
        },
    ),
    "path of the reader's own": (
        tidy.machine_paths,
        {"mdt/metadata/log/codec.py": "x = 'warehouse/tmp/x'"},
    ),
}


@pytest.mark.parametrize(("rule", "files"), ALLOWED.values(), ids=ALLOWED.keys())
def test_rule_allows(rule: tidy.Rule, files: dict[str, str], tmp_path: Path) -> None:
    breaches = tidy.check(planted(tmp_path, files), rule)
    assert not breaches, listed(breaches)


def test_late_modules_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(late.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == late._MODULES
    for name, module in seen.items():
        assert getattr(late, name).__name__ == module
    with pytest.raises(AttributeError, match="has no attribute 'earlier'"):
        late.earlier  # noqa: B018
