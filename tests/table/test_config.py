"""Options have a type, a range and one name, and Hudi's names are accepted as aliases."""

import dataclasses
from typing import get_args

import pyarrow as pa
import pytest
from documents import ROOT
from hypothesis import given
from hypothesis import strategies as st
from option_pages import options_reference
from refusals import refused

import mdt
from mdt.arguments import listed, listing
from mdt.config import (
    Options,
    changed_options,
    parse_options,
)
from mdt.option import COLUMN, Scope
from mdt.option_lists import options_list, options_table


def test_missing_options_have_their_defaults():
    assert parse_options() == parse_options({}) == Options()


def test_hudis_names_are_aliases_of_mdt_options():
    bytes_max, hive_style, compression = (
        "hoodie.parquet.max.file.size",
        "hoodie.datasource.write.hive_style_partitioning",
        "hoodie.parquet.compression.codec",
    )
    assert parse_options(
        {"mdt.max.file.bytes": 200 << 20, "mdt.hive.style": True, "mdt.compression": "snappy"}
    ) == parse_options({bytes_max: str(200 << 20), hive_style: "TRUE", compression: "snappy"})
    fixed_partition = parse_options({"hoodie.bloom.index.update.partition.path": "false"})
    assert not fixed_partition.update_partition_path
    same = {bytes_max: "1048576", "mdt.max.file.bytes": 1 << 20}
    assert parse_options(same).max_file_bytes == 1 << 20
    refused("same option", parse_options, same | {"mdt.max.file.bytes": 1 << 21})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("mdt.max.file.byte", 1, "unknown option 'mdt.max.file.byte' … hint: … max.file"),
        (
            "hoodie.parquet.max.file.sizes",
            1,
            "unknown option 'hoodie.parquet.max.file.sizes' … hint: … max.file",
        ),
        ("MDT.MAX.FILE.BYTES", 1, "unknown option 'MDT.MAX.FILE.BYTES' … hint: "),
        ("mdt.compression", "gzip", "mdt.compression … hint: … lz4, zstd, snappy"),
        ("mdt.durable", "yes", "mdt.durable … hint: … true or false"),
        ("mdt.durable", 1, "mdt.durable … hint: … true or false"),
        ("mdt.row.group.rows", 0, "mdt.row.group.rows … hint: … from 1 to"),
        ("mdt.row.group.rows", 2048.5, "mdt.row.group.rows … hint: … whole number"),
        ("mdt.row.group.rows", True, "mdt.row.group.rows … hint: … whole"),
        ("mdt.row.group.rows", "many", "mdt.row.group.rows … hint: … whole"),
        ("mdt.bloom.fpp", "nan", "mdt.bloom.fpp … hint: … from 1e-09 to 0.5"),
        ("mdt.bloom.fpp", 1, "mdt.bloom.fpp … hint: … to 0.5"),
        ("mdt.column.stats.columns", [1], "mdt.column.stats.columns … hint: … column names"),
        ("mdt.table.name", None, "mdt.table.name … hint: … text"),
        ("mdt.writer.threads", -1, "mdt.writer.threads … hint: … from 0"),
    ],
)
def test_an_unknown_name_or_invalid_value_raises_with_the_allowed_values(name, value, said):
    refused(said, parse_options, {name: value})


def test_the_small_file_limit_defaults_to_below_a_reduced_file_size():
    assert parse_options({"mdt.max.file.bytes": 6000}).small_file_bytes == 5000
    large = parse_options({"mdt.max.file.bytes": 1 << 30})
    assert large.small_file_bytes == Options().small_file_bytes
    contradicting = {"mdt.max.file.bytes": 6000, "mdt.small.file.bytes": 7000}
    refused("is larger than mdt.max.file.bytes", parse_options, contradicting)


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
def test_options_can_be_restored_from_their_text_form(mapping):
    options = parse_options(mapping)
    assert parse_options(options.to_mapping()) == options


def test_every_option_is_documented_once_and_has_one_scope():
    everything = Options().to_mapping()
    names_by_scope = [set(Options().to_mapping(scope)) for scope in get_args(Scope)]
    assert len(everything) == len(dataclasses.fields(Options)) == sum(map(len, names_by_scope))
    assert set().union(*names_by_scope) == set(everything)
    assert all(options_table().count(f"`{name}`") == 1 for name in everything)


def test_threads_default_to_at_least_one_and_can_be_set():
    assert Options().threads("writer") >= 1
    assert parse_options({"mdt.reader.threads": 3}).threads("reader") == 3


@pytest.mark.parametrize(
    "word", [".dir", ".threads", ".memory", ".cache.", ".spill.", "parallelism", ".local.bytes"]
)
def test_options_for_directories_memory_and_threads_have_machine_scope(word):
    matching = [option for option in options_list() if word in option["name"]]
    assert matching and {option["scope"] for option in matching} == {"machine"}


HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"mdt.clean.retain.commit": 3},
            "unknown option … did you mean mdt.clean.retain.commits",
        ),
        ({"mdt.clean.retain.commits": 0}, "not valid … from 1 to"),
        ({"mdt.hive.style": False}, "fixed at creation"),
        ({HIVE_STYLE: None}, "mdt.hive.style is fixed at creation"),
        ({"mdt.bucket.partitions": "a,3"}, "fixed at creation"),
        ({"mdt.cache.dir": "pages"}, "scope machine … mdt.open"),
        ({"mdt.commit.attempts": None}, "scope session … mdt.open"),
        ({"mdt.page.bytes": 512, "hoodie.parquet.page.size": None}, "same option"),
        ({"mdt.column.stats.columns": ["x" * 70_000]}, "more than the 65,536 allowed"),
    ],
)
def test_options_that_a_table_cannot_change_are_refused(options, said):
    refused(said, changed_options, options)


def test_the_options_page_ends_with_the_table_of_all_options():
    page = (ROOT / "docs/options.md").read_text()
    assert page.endswith(options_reference()), (
        "write options_reference() to the end of docs/options.md"
    )


def test_column_names_with_commas_can_be_listed_in_backquotes(tmp_path):
    names = ["last, first", "`q`", "v"]
    options = {"mdt.column.stats.columns": "`last, first`, v"}
    columns = pa.schema(dict.fromkeys(names, pa.string()))
    created = mdt.create(tmp_path / "t", columns, key=names[:2], options=options)
    for table in (created, mdt.open(created.path)):
        assert table.options.column_stats_columns == ("last, first", "v")


def test_the_ordering_field_may_be_quoted_in_backquotes():
    for text, column in (("ts", "ts"), ("`ts, ms `", "ts, ms "), ("ts, ms", "ts, ms"), (" ", None)):
        assert COLUMN.parse(text) == column


@given(st.lists(st.text(st.sampled_from("a,` ;"), min_size=1), max_size=4))
def test_a_list_of_names_can_be_restored_from_its_text(given_names):
    assert listed(listing(given_names)) == given_names
