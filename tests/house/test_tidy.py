"""The tree follows the rules of tests/support/tidy.py, and each rule reports a planted breach."""

import ast
import inspect
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
import tidy
from documents import ROOT

from mdt import late

TEXTS = ("pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", ".ci/run")
EVERYTHING = tidy.load(ROOT, "mdt", "indexes", "benchmarks", "tests")
PRODUCT = [module for module in EVERYTHING if module.path.startswith(("mdt/", "indexes/"))]
JAVA = tidy.load(ROOT, "mdt", ends="java")


@pytest.mark.parametrize(
    ("rule", "modules"),
    [
        (tidy.timeline_names, PRODUCT),
        (tidy.dense_functions, PRODUCT),
        (tidy.module_lines, EVERYTHING),
        (tidy.machine_paths, EVERYTHING),
        (tidy.machine_paths, [tidy.Module(name, (ROOT / name).read_text()) for name in TEXTS]),
        (tidy.java, JAVA),
    ],
)
def test_every_file_follows_the_rule(rule, modules):
    assert modules
    assert not [breach for module in modules for breach in rule(module)]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_no_large_or_stray_file_is_committed():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = list(filter(None, listed.stdout.split("\0")))
    assert len(names) > 1000
    files = [path for path in map(ROOT.joinpath, names) if path.is_file()]
    assert not [path for path in files if path.stat().st_size > 1_000_000]
    assert not [name for name in names if not re.fullmatch(r"[\w./-]+", name)]  # such as ~/data.mdb


def test_mdt_and_indexes_have_few_conditional_expressions_and_comprehensions():
    assert not list(tidy.density(PRODUCT))


def test_public_methods_have_or_inherit_a_docstring():
    undocumented = []
    for module in PRODUCT:
        for name, cls in inspect.getmembers(import_module(module.name), inspect.isclass):
            for method, function in vars(cls).items():
                is_private = name.startswith("_") or method.startswith("_")
                if cls.__module__ != module.name or is_private or not callable(function):
                    continue
                if not inspect.getdoc(function):
                    undocumented.append(f"{module.path}: {name}.{method}")
    assert not undocumented


def test_every_package_is_listed_in_pyproject():
    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = {Path(module.path).parent.as_posix().replace("/", ".") for module in PRODUCT}
    assert not [name for name in packages if f'"{name}"' not in listed]


CODEC, PUBLISH = "mdt/metadata/log/codec.py", "mdt/commit/publish.py"
BREACHES = {
    "name of an instant": (tidy.timeline_names, PUBLISH, "name = f'{time}.commit'"),
    "name of a pending one": (tidy.timeline_names, PUBLISH, "time + '.deltacommit.inflight'"),
    "path in Hudi's directory": (tidy.timeline_names, PUBLISH, "path = f'{paths.HUDI}/{name}'"),
    "path that is spelled out": (tidy.timeline_names, PUBLISH, "x = '.hoodie/timeline'"),
    "long module": (tidy.module_lines, CODEC, "x = 1\n" * 701),
    "conditional inside another": (tidy.dense_functions, PUBLISH, "x = 1 if a else 2 if b else 3"),
    "function of many parts": (
        tidy.dense_functions,
        CODEC,
        "def f(a):\n" + "    a = [b for b in a]\n" * (tidy.PARTS_MAX + 1),
    ),
    "path of a machine": (tidy.machine_paths, CODEC, "x = '/" + "home/someone/table'"),
}


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES.values(), ids=BREACHES)
def test_a_rule_reports_a_breach(rule, path, text):
    assert list(rule(tidy.Module(path, text)))


@pytest.mark.parametrize(("path", "n"), [(CODEC, 40), ("mdt/hudi/avro_schema.py", 30)])
def test_fewer_comprehensions_are_allowed_in_folders_that_reached_the_goal(path, n):
    text = "x = 1\n" * (1000 - n) + "x = [y for y in x]\n" * n
    assert list(tidy.density([tidy.Module(path, text), tidy.Module(PUBLISH, "")]))


A = "// What it is.\npackage mdt;\n\nfinal class A {\n    int a;\n}\n"
JAVA_BREACHES = {
    "a long file": A + "//\n" * 300,
    "a file without a comment": A.partition("\n")[2],
    "a class in a class": A.replace("    int a;", "    static class B {\n    }"),
    "a class of another name": A.replace("class A", "class B"),
}


@pytest.mark.parametrize("text", JAVA_BREACHES.values(), ids=JAVA_BREACHES)
def test_the_rule_for_java_reports_a_breach(text):
    assert not list(tidy.java(tidy.Module("mdt/A.java", A)))
    assert list(tidy.java(tidy.Module("mdt/A.java", text)))


WORDS = "x = 'mdt.commit'\ny = 'ends in .inflight or so'"
ALLOWED = [
    (tidy.timeline_names, "mdt/hudi/v9.py", "name = f'{time}.commit'"),
    (tidy.timeline_names, "mdt/metadata/files/paths.py", "x = '.hoodie/hoodie.properties'"),
    (tidy.timeline_names, "mdt/logs.py", WORDS),
    (tidy.machine_paths, CODEC, "x = 'warehouse/tmp/x'"),
]


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_a_rule_allows_text_that_is_no_breach(rule, path, text):
    assert not list(rule(tidy.Module(path, text)))


def test_modules_loaded_late_are_those_that_type_checkers_see():
    tree = ast.parse(Path(late.__file__).read_text(encoding="utf-8"))
    imported = {}
    for block in tree.body:
        for node in block.body if isinstance(block, ast.If) else ():
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    assert imported == late._MODULES
    assert {name: getattr(late, name).__name__ for name in imported} == imported
    with pytest.raises(AttributeError, match="has no attribute 'earlier'"):
        late.earlier  # noqa: B018
