"""The newest slice of each file group, for every rule of both layouts of the timeline.

Instants are small numbers. ``b5`` is the base file of instant 5, ``l5`` a log file with instant 5
in its name, and ``l5.2`` the second such log file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from mdt.hudi import file_names, properties
from mdt.hudi.read import table_properties
from mdt.hudi.read.file_slices import (
    FileSlice,
    group_files,
    instants_to_look_up,
    newest_slices,
)
from mdt.hudi.read.instants import Timeline, parse_name, timeline_of
from mdt.hudi.read.table_properties import TableProperties

GROUP = ("p", "f-0")


def time(number: int | str) -> str:
    return f"20240101{int(number):09}"


def table(version: int = 9, **more: str) -> TableProperties:
    stored = {
        properties.NAME: "trips",
        properties.TYPE: "MERGE_ON_READ",
        properties.VERSION: str(version),
        properties.LAYOUT: "1" if version < 8 else "2",
    }
    return table_properties.from_properties({**stored, **more})


def timeline(version: int, *names: str) -> Timeline:
    """Return a timeline of instants such as ``3_5.commit`` and ``3.compaction.requested``."""
    files = []
    for name in names:
        times, _, rest = name.partition(".")
        if version < 8:
            times = times.partition("_")[0]
        full = "_".join(map(time, times.split("_")))
        file = parse_name(f"{full}.{rest}", 1 if version < 8 else 2)
        assert file is not None, name
        files.append(file)
    return timeline_of(files)


def full_name(short: str, file_id: str = "f-0") -> str:
    match = re.fullmatch(r"([bl])([0-9]+)(?:\.([0-9]+))?", short)
    assert match is not None, short
    if match[1] == "b":
        return f"{file_id}_1-2-3_{time(match[2])}.parquet"
    return f".{file_id}_{time(match[2])}.log.{match[3] or 1}_1-2-3"


def short_name(name: str) -> str:
    """Invert full_name."""
    if (base := file_names.parse_base(name, file_names.ANY_BASE)) is not None:
        return f"b{int(base.instant[8:])}"
    log = file_names.parse_log(name, file_names.ANY_LOG)
    assert log is not None, name
    return f"l{int(log.instant[8:])}" + (f".{log.version}" if log.version > 1 else "")


def describe(file_slice: FileSlice) -> str:
    """Return a slice as ``instant: base logs``."""
    files = [*([file_slice.base] if file_slice.base else []), *file_slice.logs]
    return f"{int(file_slice.instant[8:])}: {' '.join(short_name(file.name) for file in files)}"


def newest(
    version: int,
    instants: str,
    files: str,
    *,
    pending: int | None = None,
    replaced: int | None = None,
    at: int | None = None,
    history: Mapping[int, int] | None = None,
) -> str:
    """Return the newest slice of the only file group, or "" if it has none."""
    names = {full_name(short): 1 for short in files.split()}
    state = timeline(version, *instants.split())
    state = state.with_history({time(a): time(b) for a, b in (history or {}).items()})
    slices = newest_slices(
        group_files({"p": names}, table(version)),
        state,
        table(version),
        compactions={} if pending is None else {GROUP: time(pending)},
        replaced={} if replaced is None else {GROUP: time(replaced)},
        at="" if at is None else time(at),
    )
    assert len(slices) <= 1
    return describe(slices[0]) if slices else ""


EVERY_VERSION = pytest.mark.parametrize("version", [6, 8, 9])
VERSIONS_8_AND_9 = pytest.mark.parametrize("version", [8, 9])


@pytest.mark.parametrize("token", ["1-2-3", "٠-١٧-١٥", "a1-b2"])
def test_base_files_may_have_write_tokens_of_any_text(token):
    name = f"f-0_{token}_{time(1)}.parquet"
    [group] = group_files({"p": {name: 1}}, table()).values()
    assert group.bases[time(1)].name == name


@EVERY_VERSION
def test_the_newest_completed_base_file_begins_the_slice(version):
    instants = "1_2.commit 3_4.commit 5.commit.requested 5.inflight"
    assert newest(version, instants, "b1 b3 b5") == "3: b3"


@EVERY_VERSION
def test_files_of_unknown_instants_are_left_out(version):
    assert newest(version, "3_4.commit", "b3 b7 l7") == "3: b3"
    assert newest(version, "3_4.commit", "b7") == ""


@EVERY_VERSION
def test_files_before_the_start_of_the_timeline_count_as_completed(version):
    assert newest(version, "5_6.commit", "b2") == "2: b2"
    assert newest(version, "5_6.commit", "l2") == "2: l2"


@EVERY_VERSION
def test_a_pending_write_at_the_start_of_the_timeline_is_left_out(version):
    assert newest(version, "2.deltacommit.inflight 5_6.commit", "b1 b2 l2") == "1: b1"


@EVERY_VERSION
def test_an_empty_timeline_has_no_slices(version):
    assert newest(version, "", "b1 l1") == ""


def test_log_files_of_version_6_have_the_base_instant_of_their_slice_in_their_name():
    instants = "1_1.commit 2_2.deltacommit 3_3.deltacommit 4_4.commit"
    assert newest(6, instants, "b1 l1 l1.2") == "1: b1 l1 l1.2"
    assert newest(6, instants, "b1 l1 l1.2 b4 l4") == "4: b4 l4"


def test_log_files_of_version_6_are_ordered_by_their_version_number():
    assert newest(6, "1_1.commit", "b1 l1.10 l1.9 l1") == "1: b1 l1 l1.9 l1.10"


@VERSIONS_8_AND_9
def test_log_files_belong_to_the_slice_before_their_completion(version):
    instants = "1_2.deltacommit 3_4.deltacommit 5_6.commit 7_8.deltacommit"
    assert newest(version, instants, "b1 l3") == "1: b1 l3"
    assert newest(version, instants, "b1 l3 b5 l7") == "5: b5 l7"


@VERSIONS_8_AND_9
def test_a_commit_completed_after_the_request_of_a_compaction_belongs_to_its_slice(version):
    instants = "1_2.deltacommit 3_8.deltacommit 5_9.commit 4_4.deltacommit"
    assert newest(version, instants, "b1 l3 l4 b5") == "5: b5 l3"


@VERSIONS_8_AND_9
def test_a_commit_completed_at_the_request_of_a_compaction_belongs_to_its_slice(version):
    assert newest(version, "1_2.commit 3_5.deltacommit 5_6.commit", "b1 b5 l3") == "5: b5 l3"


@VERSIONS_8_AND_9
def test_log_files_of_pending_writes_are_left_out(version):
    instants = "1_2.commit 3.deltacommit.requested 3.deltacommit.inflight"
    assert newest(version, instants, "b1 l3") == "1: b1"


@VERSIONS_8_AND_9
def test_a_log_file_after_the_base_file_of_an_unfinished_write_is_read(version):
    instants = "1_2.commit 3.deltacommit.requested 3.deltacommit.inflight 5_6.deltacommit"
    assert newest(version, instants, "b1 b3 l5") == "1: b1 l5"


@VERSIONS_8_AND_9
def test_log_files_are_ordered_by_the_request_time_of_their_instants(version):
    instants = "1_2.commit 3_9.deltacommit 4_5.deltacommit"
    assert newest(version, instants, "b1 l4 l4.2 l3") == "1: b1 l3 l4 l4.2"


def test_log_files_of_an_instant_are_ordered_by_version_and_write_token():
    names = [f".f-0_{time(3)}.log.{end}" for end in ("2_1-0-1", "10_0-0-0", "2_0-9-0", "2")]
    groups = group_files({"p": dict.fromkeys([*names, full_name("b1")], 1)}, table())
    [file_slice] = newest_slices(groups, timeline(9, "1_2.commit", "3_4.deltacommit"), table())
    ends = [file.name.partition(".log.")[2] for file in file_slice.logs]
    assert ends == ["2", "2_0-9-0", "2_1-0-1", "10_0-0-0"]


@VERSIONS_8_AND_9
def test_a_slice_of_only_log_files_begins_with_the_first_completed_log_file(version):
    instants = "3_4.deltacommit 5_6.deltacommit 7_9.deltacommit"
    assert newest(version, instants, "l5 l3") == "3: l3 l5"
    assert newest(version, "3.deltacommit.inflight 5_6.deltacommit", "l5 l3") == "5: l5"


def test_in_version_6_a_slice_may_have_only_log_files():
    assert newest(6, "3_4.deltacommit 5_6.deltacommit", "l3 l3.2") == "3: l3 l3.2"
    assert newest(6, "3.deltacommit.inflight 5_6.deltacommit", "l3") == ""
    assert newest(6, "3_4.deltacommit 7_8.commit", "l3 b7 l7") == "7: b7 l7"


@VERSIONS_8_AND_9
def test_a_log_file_that_is_older_than_the_base_file_is_not_in_its_slice(version):
    assert newest(version, "1_2.deltacommit 5_6.commit", "l1 b5") == "5: b5"


@VERSIONS_8_AND_9
def test_a_compaction_of_only_log_files_begins_a_slice(version):
    instants = "1_2.deltacommit 3_4.deltacommit 5_6.commit 7_8.deltacommit"
    assert newest(version, instants, "l1 l3 b5 l7") == "5: b5 l7"


@EVERY_VERSION
def test_a_file_group_with_a_pending_compaction_is_read_from_the_slice_before_it(version):
    instants = "1_2.commit 5.compaction.requested 5.compaction.inflight"
    assert newest(version, instants, "b1", pending=5) == "1: b1"
    assert newest(version, instants, "b1 b5", pending=5) == "1: b1"


def test_log_files_after_a_pending_compaction_are_read_in_version_6():
    instants = "1_1.commit 3_3.deltacommit 5.compaction.requested 7_7.deltacommit"
    assert newest(6, instants, "b1 l1 l5", pending=5) == "1: b1 l1 l5"
    assert newest(6, instants, "b1 l1 l5 b5", pending=5) == "1: b1 l1 l5"
    assert newest(6, instants, "l3 l5", pending=5) == "3: l3 l5"
    assert newest(6, instants, "l5", pending=5) == "5: l5"
    assert newest(6, f"{instants} 5_5.commit", "b1 l1 l5 b5") == "5: b5 l5"


@VERSIONS_8_AND_9
def test_log_files_after_a_pending_compaction_are_read(version):
    instants = "1_2.commit 3_4.deltacommit 5.compaction.requested 7_8.deltacommit"
    assert newest(version, instants, "b1 l3 l7", pending=5) == "1: b1 l3 l7"
    assert newest(version, f"{instants} 5_9.commit", "b1 l3 l7 b5") == "5: b5 l7"


@VERSIONS_8_AND_9
def test_logs_of_both_slices_of_a_pending_compaction_are_in_order(version):
    instants = "1_2.commit 3_9.deltacommit 4_4.deltacommit 5.compaction.requested"
    assert newest(version, instants, "b1 l3 l4", pending=5) == "1: b1 l3 l4"


@EVERY_VERSION
def test_a_file_group_with_only_a_pending_compaction_has_no_slice(version):
    assert newest(version, "5.compaction.requested", "b5", pending=5) == ""


@EVERY_VERSION
def test_a_replaced_file_group_has_no_slice(version):
    instants = "1_2.commit 3_4.replacecommit"
    assert newest(version, instants, "b1", replaced=3) == ""
    assert newest(version, instants, "b1", replaced=3, at=3) == ""
    assert newest(version, instants, "b1", replaced=3, at=2) == "1: b1"


@EVERY_VERSION
def test_slices_as_of_an_instant_have_the_newest_base_file_at_that_time(version):
    instants = "1_2.commit 3_4.commit 5_6.commit"
    files = "b1 b3 b5"
    assert [newest(version, instants, files, at=at) for at in (0, 1, 2, 3, 4, 5)] == [
        "",
        "1: b1",
        "1: b1",
        "3: b3",
        "3: b3",
        "5: b5",
    ]


@VERSIONS_8_AND_9
def test_log_files_as_of_an_instant_are_chosen_by_their_request_time(version):
    instants = "1_2.commit 3_4.deltacommit 5_9.commit 6_7.deltacommit"
    files = "b1 l3 b5 l6"
    assert newest(version, instants, files, at=2) == "1: b1"
    assert newest(version, instants, files, at=3) == "1: b1 l3"
    assert newest(version, instants, files, at=5) == "5: b5"
    assert newest(version, instants, files, at=6) == "5: b5 l6"


@VERSIONS_8_AND_9
def test_as_of_an_instant_before_a_slice_was_requested_its_log_files_are_in_the_older_slice(
    version,
):
    instants = "1_2.commit 3_8.deltacommit 5_9.commit"
    assert newest(version, instants, "b1 l3 b5", at=4) == "1: b1 l3"


def test_slices_of_version_6_as_of_an_instant_leave_out_log_files_of_later_compactions():
    instants = "1_1.commit 3_3.deltacommit 5.compaction.requested 7_7.deltacommit"
    assert newest(6, instants, "b1 l1 l5", pending=5, at=4) == "1: b1 l1"
    assert newest(6, instants, "b1 l1 l5", pending=5, at=6) == "1: b1 l1 l5"


@VERSIONS_8_AND_9
def test_a_pending_compaction_after_the_requested_instant_has_no_effect(version):
    instants = "1_2.commit 3_6.deltacommit 5.compaction.requested"
    assert newest(version, instants, "b1 l3", pending=5, at=4) == "1: b1 l3"
    assert newest(version, instants, "l3", pending=5, at=4) == "3: l3"
    assert newest(version, instants, "l3", pending=5, at=5) == "5: l3"


@VERSIONS_8_AND_9
def test_completion_times_of_archived_log_files_come_from_the_history(version):
    instants = "9_10.commit"
    assert newest(version, instants, "b1 l2 b4") == "4: b4"
    assert newest(version, instants, "b1 l2 b4", history={2: 6}) == "4: b4 l2"
    assert newest(version, instants, "b1 l3", history={3: 4}) == "1: b1 l3"


@VERSIONS_8_AND_9
def test_a_savepoint_does_not_hide_instants_that_were_archived_after_it(version):
    instants = "1_2.commit 1.savepoint.inflight 1_3.savepoint 8_9.commit"
    assert newest(version, instants, "b1 b5") == "5: b5"


@EVERY_VERSION
def test_cdc_files_and_other_files_are_left_out(version):
    names = [
        full_name("b1"),
        f".f-0_{time(1)}.log.1_1-2-3.cdc",
        f".f-0_{time(1)}.log.x_1-2-3",
        f".f-0_{time(1)}.log.1_1-2-3.tmp",
        ".hoodie_partition_metadata",
        "a.parquet",
        f"f-0_1-2-3_{time(1)}.orc",
        f"f-0_1-2-3_{time(1)}.hfile",
        f"f-0_1-2-3_{time(1)}.parquet.crc",
        f"_1-2-3_{time(1)}.parquet",
        "",
    ]
    groups = group_files({"p": dict.fromkeys(names, 1)}, table(version))
    [file_slice] = newest_slices(groups, timeline(version, "1_2.commit"), table(version))
    assert describe(file_slice) == "1: b1"


def test_log_files_of_a_copy_on_write_table_are_left_out():
    cow = table(**{properties.TYPE: "COPY_ON_WRITE"})
    groups = group_files({"p": dict.fromkeys(map(full_name, ("b1", "l1", "l2")), 1)}, cow)
    [file_slice] = newest_slices(groups, timeline(9, "1_2.commit", "2_3.commit"), cow)
    assert describe(file_slice) == "1: b1"


def test_hfiles_and_file_ids_of_hudis_metadata_table_are_read():
    metadata_table = table(**{"hoodie.table.base.file.format": "HFILE"})
    name = f"record-index-city%3Da_b-0001-0_0-5-8_{'0' * 17}.hfile"
    log = f".record-index-city%3Da_b-0001-0_{time(5)}001.log.1_0-1-2"
    groups = group_files({"record_index": {name: 7, log: 8}}, metadata_table)
    state = timeline(9, "5_6.deltacommit").with_history({f"{time(5)}001": time(6)})
    [file_slice] = newest_slices(groups, state, metadata_table)
    assert file_slice.file_id == "record-index-city%3Da_b-0001-0"
    assert file_slice.base is not None and file_slice.base.size == 7
    assert [file.size for file in file_slice.logs] == [8]


def test_the_last_by_name_of_several_base_files_of_an_instant_is_used():
    names = [f"f-0_{token}_{time(1)}.parquet" for token in ("2-0-0", "0-0-0", "1-0-0")]
    groups = group_files({"p": dict.fromkeys(names, 1)}, table())
    [file_slice] = newest_slices(groups, timeline(9, "1_2.commit"), table())
    assert file_slice.base is not None and file_slice.base.name == names[0]


def test_slices_are_sorted_and_have_paths_and_sizes_of_their_files():
    files = {
        "b": {full_name("b1", "y-0"): 1, full_name("b1", "x-0"): 2},
        "": {full_name("b1", "z-0"): 3},
    }
    slices = newest_slices(group_files(files, table()), timeline(9, "1_2.commit"), table())
    bases = [file_slice.base for file_slice in slices if file_slice.base is not None]
    assert [file.size for file in bases] == [3, 2, 1]
    paths = [file_slice.path(base) for file_slice, base in zip(slices, bases, strict=True)]
    assert paths == [
        full_name("b1", "z-0"),
        f"b/{full_name('b1', 'x-0')}",
        f"b/{full_name('b1', 'y-0')}",
    ]


def test_only_instants_missing_on_the_timeline_are_looked_up_in_the_history():
    names = ("b1", "b5", "b8", "l2", "l5", "l6", "l9")
    groups = group_files({"p": dict.fromkeys(map(full_name, names), 1)}, table())
    state = timeline(9, "5_5.commit", "6.deltacommit.requested")
    assert instants_to_look_up(groups, state, table()) == {time(2), time(8), time(9)}
    assert instants_to_look_up(groups, timeline(6, "5_5.commit"), table(6)) == set()
