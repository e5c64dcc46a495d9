"""Spark reads the deleted rows of a file only if a query reads that file, once for each table
version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap
from pyspark.sql.types import LongType, StructField, StructType
from whole_files import WholeFiles

from indexes.predicate import And, Leaf, leaves
from mdt.engines.spark import file_index
from mdt.engines.spark.failures import TaskFailed
from mdt.engines.spark.file_index import _Planner, relation
from mdt.engines.spark.listing import Listing

SCHEMA = StructType([StructField("id", LongType())])


@dataclass
class RecordingFiles(WholeFiles):
    """Files that record whose deleted rows were requested."""

    requests: list[list[int]] = field(default_factory=list)

    def dead(self, at):
        self.requests.append(list(at))
        return super().dead(at)


class Lister(file_index.Lister):
    """Five files of ten rows. The first row of each file but the last is deleted. A filter on
    ``id`` selects the file by the tens digit.
    """

    def __init__(self, folder):
        self.files = [folder / f"{n}.parquet" for n in range(5)]
        self.version = 1
        self.requests: list[list[int]] = []

    def list(self, query, predicate, rows=None):
        sizes = [file.stat().st_size for file in self.files]
        dead = [BitMap([0]).serialize()] * 4 + [b""]
        files = RecordingFiles([file.as_uri() for file in self.files], sizes, dead, self.requests)
        tests = [leaf for leaf in leaves(predicate) if isinstance(leaf, Leaf) and leaf.op == "="]
        keep = np.array([leaf.value // 10 for leaf in tests], np.int32) if tests else None
        return Listing(self.version, files, keep)


@pytest.fixture
def lister(tmp_path):
    files_lister = Lister(tmp_path)
    for n, file in enumerate(files_lister.files):
        pq.write_table(pa.table({"id": np.arange(10 * n, 10 * n + 10)}), file)
    return files_lister


def test_deleted_rows_are_requested_once_and_only_for_files_that_a_query_reads(spark, lister):
    frame = relation(spark, lister, SCHEMA, lister.files[0].parent.as_uri())
    assert [row.id for row in frame.where("id = 12").collect()] == [12] and lister.requests == [[1]]
    assert not frame.where("id = 10").collect() and lister.requests == [[1]]
    assert frame.where("id = 40").count() == 1 and lister.requests == [[1]], (
        "that file has no deleted rows"
    )
    assert len(frame.inputFiles()) == 5 and lister.requests == [[1]], (
        "file names need no deleted rows"
    )
    assert frame.count() == 46 and lister.requests == [[1], [0, 2, 3]]
    assert frame.count() == 46 and len(lister.requests) == 2
    lister.version = 2
    assert frame.count() == 46 and lister.requests[2:] == [[0, 1, 2, 3]], (
        "another version has other deleted rows"
    )


def test_an_older_version_is_listed_again_and_raises_conflict_if_it_has_changed(
    lister,
):
    planner = _Planner(lister, frozenset(["id"]), "root")
    request = {"query": "q", "known": [], "gone": [], "filters": []}
    for version in range(1, 8):
        lister.version = version
        planner.apply(json.dumps(request))
    dead = json.dumps({"query": "q", "version": 6, "dead": [2]})
    first = planner.apply(dead)
    assert lister.requests == [[2]] and BitMap.deserialize(first[5:]) == BitMap([0])
    dead = json.dumps({"query": "q", "version": 0, "dead": [2]})
    with pytest.raises(TaskFailed, match=r"Conflict.*run the query again"):
        planner.apply(dead)
    lister.version = 1
    assert planner.apply(dead) == first
    assert lister.list("q", And(())).keep is None
