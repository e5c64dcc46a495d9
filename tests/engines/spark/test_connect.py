"""A classic session with the Spark Connect plugin serves clients that have no JVM."""

import pytest
from test_on_a_cluster import run
from texts import columns


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_spark_connect_clients_read_and_write_tables_through_a_server(tmp_path):
    pytest.importorskip("grpc")
    report = run("connect_jobs.py", tmp_path, "server", str(tmp_path))
    assert report == {
        "streamed": 2,
        "rows": [["a", 2.5], ["b", 2.5]],
        "found": 1,
        "before": 2,
        "changes": 2,
        "statement": ["IllegalArgumentException", "MDT_INVALID", "22023"],
        "frame": ["Unsupported", "MDT_UNSUPPORTED", "0A000"],
        "session": ["Unsupported", "MDT_UNSUPPORTED", "0A000"],
    }


def test_spark_connect_frames_and_sessions_are_refused_with_a_hint(tmp_path):
    from pyspark.sql import DataFrame

    import mdt
    from mdt.engines.spark.session import classic
    from mdt.errors import Unsupported

    module = {"__module__": "pyspark.sql.connect.dataframe"}
    remote = type("DataFrame", (DataFrame,), {**module, "__new__": object.__new__})
    table = mdt.create(tmp_path / "t", columns("id int64"), key=["id"])
    for call in (
        table.upsert,
        table.delete,
        table.merge,
        table.bulk_insert,
        lambda rows: table.upsert(rows, evolve=True),
    ):
        with pytest.raises(Unsupported, match="DataFrames of Spark Connect") as caught:
            call(remote())
        assert "frame.toArrow()" in caught.value.hint
    with pytest.raises(Unsupported, match="a classic Spark session") as caught:
        classic(type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})())
    assert 'spark.read.format("mdt")' in caught.value.hint
