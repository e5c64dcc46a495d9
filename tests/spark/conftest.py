"""One small local Spark session for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.pyspark.python": sys.executable,
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "America/Los_Angeles",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads, its time zone far from UTC, its warehouse in a temporary folder."""
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", tmp_path_factory.mktemp("warehouse").as_uri())
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
