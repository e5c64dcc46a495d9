"""The installed package: contents of wheel and sdist, extras, public names, use without pyspark."""

import re
import shutil
import sys
import tarfile
import tomllib
import zipfile

import documents
import oldest
import pytest
from documents import ran

import indexes
import mdt
from mdt import late
from mdt.errors import Unsupported

pytestmark = pytest.mark.slow  # builds packages, which the oldest setuptools cannot

ROOT = documents.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = (
    "indexes",
    "mdt",
    "tests",
    "benchmarks",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "FORMAT.md",
    "pyproject.toml",
)
BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a function that builds a "wheel" or "sdist" of a copy of the tree.

    Warnings of setuptools are errors.
    """
    folder = tmp_path_factory.mktemp("build")
    tree = folder / "tree"
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)

    def build(kind):
        done = ran([sys.executable, "-W", "error", "-c", BUILD, kind, str(folder)], tree, tree)
        assert done.returncode == 0, done.stderr
        assert "Deprecat" not in done.stdout + done.stderr, done.stderr
        return folder / done.stdout.splitlines()[-1]

    return build


@pytest.fixture(scope="module")
def wheel(built):
    return built("wheel")


def python_files(*tops):
    return {
        file.relative_to(ROOT).as_posix() for top in tops for file in (ROOT / top).rglob("*.py")
    }


def test_the_wheel_has_every_module_the_java_sources_and_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    info = {name for name in names if ".dist-info/" in name}
    java = {file.relative_to(ROOT).as_posix() for file in (ROOT / "mdt").rglob("*.java")}
    assert java
    assert names - info == python_files("mdt", "indexes") | java | {
        "mdt/py.typed",
        "indexes/py.typed",
    }
    assert any(name.endswith("licenses/LICENSE") for name in info)


def test_the_sdist_has_all_files_that_a_build_needs_and_no_tests(built):
    with tarfile.open(built("sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    texts = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "FORMAT.md",
        "CHANGELOG.md",
        "mdt/py.typed",
        "indexes/py.typed",
    }
    assert names >= python_files("mdt", "indexes") | texts
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]


def test_the_metadata_has_a_license_expression_and_no_classifier(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = archive.read(name).decode()
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "License ::" not in metadata


WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
"""


def test_the_quick_start_runs_from_the_wheel_without_pyspark(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    first = next(
        b
        for b in documents.blocks("README.md", (ROOT / "README.md").read_text())
        if b.language == "python"
    )
    code = f"{WITHOUT_PYSPARK}\n{first.code}\nprint(mdt.__file__)"
    done = ran([sys.executable, "-c", code], tmp_path, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "site" / "mdt" / "__init__.py")


SPARK_ENTRIES = {
    "mdt.read": "mdt.read(None, 't')",
    "scan.to_spark": "t.scan().to_spark(None)",
    "explain": "t.scan().explain(spark=object())",
    "a DataFrame to upsert": "t.upsert(frame)",
    "a DataFrame to delete": "t.delete(frame)",
    "create_index": "t.create_index('bitmap(v)', spark=object())",
    "build_indexes": "t.build_indexes(spark=object())",
    "functions": "import mdt.spark",
}
NO_SPARK = """
import mdt, pyarrow as pa
DataFrame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})
frame = DataFrame()
t = mdt.create("t", pa.schema([("id", pa.string()), ("v", pa.int64())]), ["id"])
for number, entry in enumerate(ENTRIES):
    try:
        exec(entry)
    except mdt.Unsupported as error:
        assert error.hint == "pip install 'pyspark-mdt[spark]'", error
    else:
        raise AssertionError(entry)
"""


def test_without_pyspark_every_use_of_spark_is_refused_with_the_extra_to_install(tmp_path):
    code = f"{WITHOUT_PYSPARK}\nENTRIES = {list(SPARK_ENTRIES.values())}\n{NO_SPARK}"
    done = ran([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_old_pyspark_is_refused_with_its_version(monkeypatch):
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    for name in [
        name for name in sys.modules if name.startswith(("mdt.spark", "mdt.engines.spark"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in late._MODULES:  # attributes of modules that are loaded already
        monkeypatch.delitem(late.__dict__, name, raising=False)
    with pytest.raises(Unsupported, match="3.5.1 is too old") as caught:
        mdt.read(None, "t")  # type: ignore[arg-type]
    assert "pyspark-mdt[spark]" in caught.value.hint


def test_dir_lists_only_public_names():
    mdt.create  # noqa: B018 - the modules of the package are loaded now
    assert set(dir(mdt)) == {*mdt.__all__, "__version__"}
    assert dir(indexes) == sorted(indexes.__all__)
    assert all(hasattr(mdt, name) for name in dir(mdt))
    assert all(hasattr(indexes, name) for name in dir(indexes))
    with pytest.raises(AttributeError, match="nonsense"):
        indexes.nonsense  # noqa: B018 - the access raises


def test_the_version_equals_that_in_pyproject_toml():
    assert mdt.__version__ == PROJECT["version"]


def test_the_core_needs_no_pyspark_and_the_extra_s3_no_mock_server():
    named = [re.split(r"[\[<>=!~]", text)[0] for text in PROJECT["dependencies"]]
    assert "pyspark" not in named and "obstore" in named
    extras = PROJECT["optional-dependencies"]
    assert any(text.startswith("pyspark>=") for text in extras["spark"])
    assert not [text for text in extras["s3"] if text.startswith("moto")]
    assert {re.split("[<>=]", text)[0] for text in extras["testing"]} == {"hypothesis", "pytest"}


def test_every_dependency_has_a_lower_bound_that_is_pinned_in_the_oldest_environment():
    requirements = {
        *PROJECT["dependencies"],
        *(text for extra in PROJECT["optional-dependencies"].values() for text in extra),
    }
    names = {re.split(r"[\[><=]", text)[0] for text in requirements} - {PROJECT["name"]}
    pinned = [pin.partition("==") for pin in oldest.pins()]
    assert sorted(name for name, _, _ in pinned) == sorted(names)
    assert all(
        f">={release.removesuffix('.*')}" in " ".join(requirements) for _, _, release in pinned
    )
