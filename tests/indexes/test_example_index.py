"""An index of another package is found by its entry point and passes the published conformance
suite.
"""

import sys
from pathlib import Path

import pytest
from example_index import LengthIndex

from indexes.base import SkippingIndex
from indexes.registry import ENTRY_POINT_GROUP, Registry
from indexes.testing import SkippingIndexConformance

PACKAGE = Path(__file__).parents[1] / "example_index"


class TestLength(SkippingIndexConformance):
    index = LengthIndex()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Put the module and its metadata on the path. Return a function that sets the entry points."""
    info = tmp_path / "example_index-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example-index\nVersion: 1.0\n")
    (tmp_path / "example_index.py").write_text((PACKAGE / "example_index.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "example_index", raising=False)

    def announce(text):
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{text}\n")

    return announce


@pytest.mark.parametrize("name", ["length/1", "length"])
def test_an_installed_index_is_found_by_its_name(installed, name):
    installed("length = example_index:LengthIndex")
    index = Registry().find(name)
    assert isinstance(index, type) and issubclass(index, SkippingIndex) and index.name == "length/1"


def test_the_example_package_declares_its_entry_point():
    assert 'length = "example_index:LengthIndex"' in (PACKAGE / "pyproject.toml").read_text()
    assert f'entry-points."{ENTRY_POINT_GROUP}"' in (PACKAGE / "pyproject.toml").read_text()


def test_an_entry_point_that_fails_to_load_makes_only_its_own_index_unknown(installed):
    installed(
        "broken = example_index:Absent\nlength = example_index:LengthIndex\nother ="
        " no_such_module:X"
    )
    registry = Registry()
    assert registry.find("length/1").name == "length/1"
    reason = registry.find("absent/1").reason
    assert "broken = example_index:Absent" in reason and "no_such_module" in reason
