"""Commands for tables that other Hudi writers also write."""

import shutil

from command_line import document, error_of, filled, shown

import mdt


def test_adopt_refresh_and_release_work_on_a_table_of_another_writer(tmp_path):
    path = filled(tmp_path / "t")
    assert shown("refresh", path) == "0 imports\n"
    shutil.rmtree(path / ".hoodie/.mdt")  # as if another Hudi writer had written the table
    plan = document("adopt", path, "--key-index", "record", "--dry-run")
    assert plan["file_groups"] and plan["key_index"] == "record"
    assert "whose footers and keys are read" in shown("adopt", path, "--dry-run")
    assert not (path / ".hoodie/.mdt").exists()
    assert shown("adopt", path, "--index", "bitmap(city)") == f"adopted {path}\n"
    t = mdt.open(path)
    assert t.definition.indexes == ("bitmap/1(city)",) and t.scan().count() == 3
    assert "is already a table of mdt" in error_of("adopt", path)
    assert shown("release", path) == f"released {path}\n"
    assert not (path / ".hoodie/.mdt/log").exists() or not list(
        (path / ".hoodie/.mdt/log").iterdir()
    )
    assert mdt.open(path).scan().count() == 3


def test_info_counts_the_rows_of_another_writers_commit_before_refresh(tmp_path):
    path = filled(tmp_path / "t")
    other = shutil.copytree(path, tmp_path / "other")
    mdt.open(other).upsert([{"id": "9", "city": "z", "v": 9}])
    shutil.rmtree(other / ".hoodie/.mdt")
    for file in other.rglob("*"):
        target = path / file.relative_to(other)
        if file.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes().replace(b"mdt.", b"xyz."))
    assert document("info", path)["rows"] == 4
    assert shown("refresh", path) == "1 imports\n"
    assert document("info", path)["rows"] == 4
