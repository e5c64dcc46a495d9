"""Random histories against a dictionary: after each step mdt and hudi-rs read the rows of the
dictionary.
"""

import os

import pyarrow as pa
import pytest
from altered_model import AlteredAgainstDictionary
from hypothesis.stateful import run_state_machine_as_test
from model import TableAgainstDictionary, histories
from model_repeated import RepeatedAgainstList
from reader import BY_POSITION, bag, hudi_table
from texts import columns

import mdt
from mdt.hudi import log_file
from mdt.metadata.files import attachments as objects
from mdt.metadata.files.file_group import LOG
from mdt.stores.storage import MemoryStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

_EXAMPLES = int(os.environ.get("MDT_MODEL_EXAMPLES", "40"))


def campaign(name, machine, by_day, at_night):
    marks = pytest.mark.nightly, pytest.mark.timeout(3600)
    yield pytest.param(machine, max(1, by_day), id=name, marks=pytest.mark.timeout(900))
    yield pytest.param(machine, at_night, id=f"many of {name}", marks=marks)


@pytest.mark.parametrize(
    ("machine", "examples"),
    [
        *campaign("one model", TableAgainstDictionary, _EXAMPLES, 20 * _EXAMPLES),
        *campaign("altered columns", AlteredAgainstDictionary, _EXAMPLES // 4, 10 * _EXAMPLES),
        *campaign("repeated keys", RepeatedAgainstList, _EXAMPLES // 8, 5 * _EXAMPLES),
    ],
)
def test_every_reader_sees_the_rows_of_the_model_after_every_step_of_random_histories(
    machine, examples
):
    run_state_machine_as_test(machine, settings=histories(examples))


_SMALL = columns("id string, ts int64")
POSITIONS = {"hoodie.write.record.positions": True}


def _small(*rows):
    return pa.table([[key for key, _ in rows], [ts for _, ts in rows]], schema=_SMALL)


def test_a_deleted_key_inserted_with_a_smaller_ordering_value_has_only_its_new_row(
    tmp_path,
):
    settings = {"ordering": "ts", "key_index": "record", "options": POSITIONS}
    table = mdt.create(tmp_path, _SMALL, ["id"], **settings)
    table.upsert(_small(("a", 5), ("b", 5)))
    table.delete(_small(("a", 0)))
    table.upsert(_small(("a", 1)))
    expected = bag(_small(("a", 1), ("b", 5)))
    for rows_read in (
        table.scan().to_arrow(),
        hudi_table(tmp_path, _SMALL),
        hudi_table(tmp_path, _SMALL, BY_POSITION),
    ):
        assert bag(rows_read) == expected


def test_positions_of_updates_belong_to_the_rows_that_they_replace(tmp_path):
    table = mdt.create(tmp_path, _SMALL, ["id"], ordering="ts", options=POSITIONS)
    table.upsert(_small(("a", 1), ("b", 5), ("c", 9)))
    table.upsert(_small(("c", 9), ("a", 2), ("b", 6)))
    assert _position_headers(table) == [True]
    assert bag(hudi_table(tmp_path, _SMALL, BY_POSITION)) == bag(
        _small(("a", 2), ("b", 6), ("c", 9))
    )
    plain = mdt.create(MemoryStorage(), _SMALL, ["id"], ordering="ts")
    plain.upsert(_small(("a", 1)))
    plain.upsert(_small(("a", 2)))
    assert _position_headers(plain) == [False], (
        "positions are off by default because Hudi 0.15 fails on them"
    )


def _position_headers(table):
    """Return for each block of each log file whether it has positions and names their base file."""
    names = [file["name"] for file in table.files().to_pylist() if file["kind"] == LOG]
    blocks = [
        block for name in names for block in log_file.parse(table.storage.read(name), path=name)
    ]
    return [{log_file.POSITIONS, log_file.BASE_INSTANT} <= block.header.keys() for block in blocks]


def test_the_number_of_open_attachment_files_is_limited(monkeypatch):
    monkeypatch.setattr(objects, "SUMMARY_FILES_OPEN_MAX", 3)
    table = mdt.create(MemoryStorage(), _SMALL, ["id"], ordering="ts")
    for number in range(12):
        table.upsert(_small(("a", number), (f"k{number}", 0)))
    assert len(table.metadata.objects._files) <= 3
    assert table.scan("id = 'a'").to_arrow().to_pylist() == [{"id": "a", "ts": 11}]


def test_options_stored_under_one_name_can_be_overridden_by_the_other():
    options = {"hoodie.metadata.compact.max.delta.commits": 2, "mdt.column.stats.columns": ["ts"]}
    table = mdt.create(MemoryStorage(), _SMALL, ["id"], options=options)
    assert table.options.column_stats_columns == ("ts",)
    for number in range(3):
        table.upsert(_small((f"k{number}", 0)))
    assert table.metadata.checkpoint_seq == 2
    reopened = mdt.open(
        table.storage, {"mdt.metadata.compact.records": 5, "hoodie.parquet.max.file.size": 1 << 20}
    )
    assert (reopened.options.metadata_compact_records, reopened.options.max_file_bytes) == (
        5,
        1 << 20,
    )
