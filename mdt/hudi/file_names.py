"""Grammar of Hudi's file names that are identical in all table versions.

Separate from the writers, because readers of metadata parse names, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HUDI = ".hoodie"
"""The directory of Hudi's own files."""
BASE = re.compile(r"([^_/]+)_([0-9]+-[0-9]+-[0-9]+)_([0-9]{14,23})\.parquet")
"""Names of base files."""
LOG = re.compile(
    r"\.([^_/]+)_([0-9]{14,23})\.log\.([1-9][0-9]{0,8})(?:_([0-9]+-[0-9]+-[0-9]+))?(\.cdc)?"
)
"""Names of log files."""
ANY_BASE = re.compile(r"([^/]+)_([^/_]+)_([0-9]{14,23})\.(?:parquet|hfile)")
"""Names of base files of any writer. File ids of Hudi's metadata table may contain ``_``."""
ANY_LOG = re.compile(
    r"\.([^/]+)_([0-9]{14,23})\.log\.([0-9]{1,9})(?:_([0-9]+-[0-9]+-[0-9]+)(\.cdc)?)?", re.ASCII
)
"""Names of log files of any writer."""


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """The parts of a base file's name.

    Attributes:
        token: ``<task>-<stage>-<attempt>``, three numbers.
    """

    file_id: str
    token: str
    instant: str


@dataclass(frozen=True, slots=True)
class LogFileName:
    """The parts of a log file's name.

    Attributes:
        instant: Depends on the layout, see :meth:`mdt.hudi.v6.Version6.log_instant`.
        token: "" in old tables.
    """

    file_id: str
    instant: str
    version: int
    token: str
    is_cdc: bool = False


def parse_base(file_name: str, pattern: re.Pattern[str] = BASE) -> BaseFileName | None:
    """Return the parts of a base file's name, or None if it is not the name of a base file.

    ``pattern``: has the same groups as BASE.

    >>> parse_base("6f2c-0_3-77-0_20240229120000123.parquet")
    BaseFileName(file_id='6f2c-0', token='3-77-0', instant='20240229120000123')
    """
    match = pattern.fullmatch(file_name)
    if match is None:
        return None
    return BaseFileName(*match.groups())


def parse_log(file_name: str, pattern: re.Pattern[str] = LOG) -> LogFileName | None:
    """Return the parts of a log file's name, or None if it is not the name of a log file.

    ``pattern``: has the same groups as LOG.

    >>> name = parse_log(".6f2c-0_20240229120000123.log.2_3-77-0")
    >>> name.file_id, name.instant, name.version, name.token, name.is_cdc
    ('6f2c-0', '20240229120000123', 2, '3-77-0', False)
    """
    match = pattern.fullmatch(file_name)
    if match is None:
        return None
    file_id, instant, version, token, cdc = match.groups()
    return LogFileName(file_id, instant, int(version), token or "", cdc is not None)
