"""Tables written by Apache Hudi on Spark: all file names, properties, instants and log blocks are
parsed.
"""

from __future__ import annotations

import base64
import json
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest
from pyroaring import BitMap64

from mdt.hudi import (
    base_file,
    commit_metadata,
    file_names,
    log_file,
    properties,
    timeline,
)
from mdt.hudi.delete_records import decode_delete_block
from mdt.hudi.v6 import Version6

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "hudi"
ZIPS = sorted(FOLDER.glob("*.zip"))
V6 = [path for path in ZIPS if "_v6_" in path.name]
pytestmark = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FOLDER}")


def members(path):
    """Yield paths below the table's directory with their contents, without files of macOS."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = PurePosixPath(info.filename)
            is_of_table = name.parts[0] != "__MACOSX" and name.name != ".DS_Store"
            if is_of_table and not info.is_dir() and name.suffix != ".crc":
                yield PurePosixPath(*name.parts[1:]), archive.read(info)


@pytest.mark.parametrize("path", V6, ids=lambda path: path.stem)
def test_every_file_of_a_version_6_table_is_parsed(path):
    counts: Counter[str] = Counter()
    for name, data in members(path):
        if name.parent.name == ".hoodie" and name.name != "hoodie.properties":
            instant = Version6().instant_at(str(name))
            assert instant is not None, name
            if instant.state == timeline.COMPLETED and instant.action != "rollback":
                metadata = json.loads(data)
                assert len(json.loads(metadata["extraMetadata"]["schema"])["fields"]) > 1
                assert commit_metadata.decode_extra(data).keys() == metadata["extraMetadata"].keys()
                stats = [
                    stat
                    for partition_stats in metadata["partitionToWriteStats"].values()
                    for stat in partition_stats
                ]
                for stat in stats:
                    assert PurePosixPath(stat["path"]).name.find(stat["fileId"]) in (0, 1)
                counts["commits"] += 1
        elif name.suffix == ".parquet":
            assert (parsed := file_names.parse_base(name.name)) is not None, name
            assert base_file.name(parsed.file_id, parsed.token, parsed.instant) == name.name
            counts["base files"] += 1
        elif ".log." in name.name:
            assert (log := file_names.parse_log(name.name)) is not None, name
            assert log_file.name(log.file_id, log.instant, log.version, log.token) == name.name
        elif name.name == ".hoodie_partition_metadata":
            assert properties.decode(data).keys() == {"commitTime", "partitionDepth"}
    assert counts["commits"] and counts["base files"]


@pytest.mark.parametrize("path", ZIPS, ids=lambda path: path.stem)
def test_the_properties_of_every_table_are_valid_and_round_trip(path):
    property_files = [
        properties.decode(data) for name, data in members(path) if name.name == "hoodie.properties"
    ]
    assert property_files
    for values in property_files:
        properties.verify(values)
        assert properties.decode(properties.encode(values)) == values
        if values.get("hoodie.table.create.schema"):
            assert len(json.loads(values["hoodie.table.create.schema"])["fields"]) > 1


def test_every_log_block_parses_and_every_delete_block_decodes():
    kinds: Counter[int] = Counter()
    for path in ZIPS:
        for name, data in members(path):
            if ".log." not in name.name:
                continue
            for block in log_file.parse(data, path=str(name)):
                kinds[block.kind] += 1
                assert len(block.header[log_file.INSTANT_TIME]) == 17
                if block.kind == log_file.PARQUET:
                    assert bytes(block.content[:4]) == bytes(block.content[-4:]) == b"PAR1"
                if block.kind == log_file.DELETE:
                    assert decode_delete_block(block.content)["key"].null_count == 0
                if log_file.POSITIONS in block.header:
                    text = block.header[log_file.POSITIONS]
                    assert len(BitMap64.deserialize(base64.b64decode(text))) > 0
    assert {log_file.AVRO, log_file.PARQUET, log_file.COMMAND} <= kinds.keys(), kinds
