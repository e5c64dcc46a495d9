"""Options: typed, ranged, named once; Hudi's names are accepted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.config import (
    Options,
    changed_options,
    options_list,
    options_reference,
    options_table,
    parse_options,
)
from mdt.errors import Invalid
from mdt.metadata.files import paths
from mdt.option import Scope


def test_nothing_given_means_the_defaults() -> None:
    assert parse_options() == parse_options({}) == Options()


def test_hudi_names_and_ours_are_the_same_option() -> None:
    ours = parse_options(
        {"mdt.max.file.bytes": 200 << 20, "mdt.hive.style": True, "mdt.compression": "snappy"}
    )
    hudi = parse_options(
        {
            "hoodie.parquet.max.file.size": str(200 << 20),
            "hoodie.datasource.write.hive_style_partitioning": "TRUE",
            "hoodie.parquet.compression.codec": "snappy",
        }
    )
    assert ours == hudi
    assert not parse_options(
        {"hoodie.bloom.index.update.partition.path": "false"}
    ).update_partition_path


@pytest.mark.parametrize(
    "name", ["mdt.max.file.byte", "hoodie.parquet.max.file.sizes", "MDT.MAX.FILE.BYTES"]
)
def test_an_unknown_option_names_the_nearest(name: str) -> None:
    with pytest.raises(Invalid, match=f"unknown option '{name}'") as caught:
        parse_options({name: 1})
    assert caught.value.hint
    if not name.isupper():
        assert "max.file" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("mdt.compression", "gzip", "lz4, zstd, snappy"),
        ("mdt.durable", "yes", "true or false"),
        ("mdt.durable", 1, "true or false"),
        ("mdt.row.group.rows", 0, "from 1 to"),
        ("mdt.row.group.rows", 2048.5, "whole number"),
        ("mdt.row.group.rows", True, "whole"),
        ("mdt.row.group.rows", "many", "whole"),
        ("mdt.bloom.fpp", "nan", "from 1e-09 to 0.5"),
        ("mdt.bloom.fpp", 1, "to 0.5"),
        ("mdt.column.stats.columns", [1], "column names"),
        ("mdt.table.name", None, "text"),
        ("mdt.writer.threads", -1, "from 0"),
    ],
)
def test_a_wrong_value_says_what_is_allowed(name: str, value: object, allowed: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_options({name: value})
    assert name in str(caught.value)
    assert allowed in caught.value.hint


def test_one_option_under_two_names_must_agree() -> None:
    same = {"hoodie.parquet.max.file.size": "1048576", "mdt.max.file.bytes": 1 << 20}
    assert parse_options(same).max_file_bytes == 1 << 20
    with pytest.raises(Invalid, match="one option"):
        parse_options(same | {"mdt.max.file.bytes": 1 << 21})


def test_the_small_file_limit_follows_a_smaller_file_size_unless_given() -> None:
    assert parse_options({"mdt.max.file.bytes": 6000}).small_file_bytes == 5000
    assert (
        parse_options({"mdt.max.file.bytes": 1 << 30}).small_file_bytes
        == Options().small_file_bytes
    )
    with pytest.raises(Invalid, match="above the largest"):
        parse_options({"mdt.max.file.bytes": 6000, "mdt.small.file.bytes": 7000})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "mdt.durable": st.booleans(),
            "mdt.usage.counts": st.booleans(),
            "mdt.bloom.fpp": st.floats(1e-9, 0.5),
            "mdt.row.group.rows": st.integers(1024, 1 << 24),
            "mdt.compression": st.sampled_from(["lz4", "zstd", "snappy", "uncompressed"]),
            "mdt.column.stats.columns": st.lists(st.sampled_from("abc"), unique=True) | st.none(),
            "mdt.max.file.bytes": st.integers(1024, 1 << 40),
        },
    )
)
def test_options_survive_their_text_form(mapping: dict[str, object]) -> None:
    options = parse_options(mapping)
    assert parse_options(options.to_mapping()) == options


def test_every_option_is_documented_once_and_has_one_scope() -> None:
    everything = Options().to_mapping()
    parted = [set(Options().to_mapping(scope)) for scope in get_args(Scope)]
    assert len(everything) == len(dataclasses.fields(Options)) == sum(map(len, parted))
    assert set().union(*parted) == set(everything)
    assert all(options_table().count(f"`{name}`") == 1 for name in everything)


def test_threads_default_to_the_processors() -> None:
    assert Options().threads("writer") >= 1
    assert parse_options({"mdt.reader.threads": 3}).threads("reader") == 3


def test_names_of_objects_sort_as_their_numbers_and_lead_back_to_them() -> None:
    assert paths.commit(5) == ".hoodie/.mdt/log/00000000000000000005"
    assert sorted(map(paths.commit, (10, 9, 100))) == [paths.commit(n) for n in (9, 10, 100)]
    assert [
        paths.seq_of(p) for p in (paths.commit(7), paths.checkpoint_manifest(8), paths.hint())
    ] == [7, 8, None]
    assert paths.partition_file("", "f") == "f"
    assert paths.partition_file("a=1/b=2", "f") == "a=1/b=2/f"


@pytest.mark.parametrize(
    "word", [".dir", ".threads", ".memory", ".cache.", ".spill.", "parallelism", ".local.bytes"]
)
def test_what_names_directories_memory_or_threads_is_of_the_machine(word: str) -> None:
    named = [option for option in options_list() if word in option["name"]]
    assert named and {option["scope"] for option in named} == {"machine"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mdt.clean.retain.commit": 3},
            "unknown option(.|\n)*did you mean mdt.clean.retain.commits",
        ),
        ({"mdt.clean.retain.commits": 0}, "not possible(.|\n)*from 1 to"),
        ({"mdt.hive.style": False}, "fixed at creation"),
        (
            {"hoodie.datasource.write.hive_style_partitioning": None},
            "mdt.hive.style is fixed at creation",
        ),
        ({"mdt.bucket.partitions": "a,3"}, "fixed at creation"),
        ({"mdt.cache.dir": "pages"}, "option of the machine(.|\n)*mdt.open"),
        ({"mdt.commit.attempts": None}, "option of the session(.|\n)*mdt.open"),
        ({"mdt.page.bytes": 512, "hoodie.parquet.page.size": None}, "one option"),
        ({"mdt.column.stats.columns": ["x" * 70_000]}, "more than 65,536 bytes"),
    ],
)
def test_options_that_a_table_cannot_change_are_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        changed_options(options)


def test_the_page_of_the_options_has_the_table_of_all_of_them() -> None:
    page = Path(__file__).parent.parent / "docs" / "options.md"
    assert page.read_text().endswith(options_reference()), (
        "write options_reference() to the end of docs/options.md"
    )
