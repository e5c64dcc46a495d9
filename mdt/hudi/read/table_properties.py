"""The properties of ``hoodie.properties`` that decide how the rows of any Hudi table are read.

Table versions 6, 8 and 9. Hudi 1.x writes some properties of newer versions into tables of
version 6, too. Both names of such a property are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import properties
from mdt.hudi.file_names import HUDI
from mdt.schema.definition import MERGE_ON_READ
from mdt.stores.contract import is_path

VERSIONS = (6, 8, 9)
"""Values of ``hoodie.table.version`` that can be read."""

EVENT_TIME = "EVENT_TIME_ORDERING"
COMMIT_TIME = "COMMIT_TIME_ORDERING"
CUSTOM = "CUSTOM"
"""Merge modes: the larger ordering value wins, the later commit wins, or code decides."""

IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
FILL_UNAVAILABLE = "FILL_UNAVAILABLE"
"""Partial updates: a column's default, or a value that means "unavailable", does not replace an
older value.
"""

PATH = f"{HUDI}/hoodie.properties"

_MODE = "hoodie.record.merge.mode"
_STRATEGY = "hoodie.record.merge.strategy.id"
_OLD_STRATEGY = "hoodie.compaction.record.merger.strategy"
_PAYLOAD = "hoodie.compaction.payload.class"
_LEGACY_PAYLOAD = "hoodie.table.legacy.payload.class"
_MERGE_PROPERTY = "hoodie.record.merge.property."
_DELETE_FIELD = f"{_MERGE_PROPERTY}hoodie.payload.delete.field"
_DELETE_MARKER = f"{_MERGE_PROPERTY}hoodie.payload.delete.marker"
_UNAVAILABLE = (
    f"{_MERGE_PROPERTY}hoodie.write.partial.update.unavailable.value",
    f"{_MERGE_PROPERTY}partial.update.unavailable.value",
)
_MERGE_PROPERTIES = frozenset((_DELETE_FIELD, _DELETE_MARKER, *_UNAVAILABLE))
_PARTIAL_UPDATE = "hoodie.table.partial.update.mode"
_BASE_FORMAT = "hoodie.table.base.file.format"
_OLD_BASE_FORMAT = "hoodie.table.ro.file.format"
_LOG_FORMAT = "hoodie.table.log.file.format"
_KEY_FIELDS = "hoodie.table.recordkey.fields"
_PARTITION_FIELDS = "hoodie.table.partition.fields"
_KEY_CLASS = "hoodie.table.keygenerator.class"
_KEY_TYPE = "hoodie.table.keygenerator.type"

_PAYLOADS = "org.apache.hudi.common.model."
_COMMIT_TIME_PAYLOADS = frozenset((f"{_PAYLOADS}OverwriteWithLatestAvroPayload",))
_EVENT_TIME_PAYLOADS = frozenset(
    (f"{_PAYLOADS}DefaultHoodieRecordPayload", f"{_PAYLOADS}EventTimeAvroPayload")
)
_DESCRIBED_PAYLOADS = (
    _COMMIT_TIME_PAYLOADS
    | _EVENT_TIME_PAYLOADS
    | {
        f"{_PAYLOADS}AWSDmsAvroPayload",
        f"{_PAYLOADS}OverwriteNonDefaultsWithLatestAvroPayload",
        f"{_PAYLOADS}PartialUpdateAvroPayload",
        f"{_PAYLOADS}debezium.MySqlDebeziumAvroPayload",
        f"{_PAYLOADS}debezium.PostgresDebeziumAvroPayload",
    }
)
"""Payloads that Hudi replaces by other properties in version 9. It keeps only their names."""

_MODE_OF_STRATEGY = {
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": EVENT_TIME,
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": COMMIT_TIME,
}

TIMESTAMP = "TIMESTAMP"
"""Type of the key generator that makes partition paths of a time."""
_GENERATORS = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "TimestampBasedKeyGenerator": TIMESTAMP,
    "CustomKeyGenerator": "CUSTOM",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "GlobalDeleteKeyGenerator": "GLOBAL_DELETE",
    "AutoRecordGenWrapperKeyGenerator": "AUTO_RECORD",
    "HoodieTableMetadataKeyGenerator": "HOODIE_TABLE_METADATA",
    "SqlKeyGenerator": "SPARK_SQL",
    "UuidKeyGenerator": "SPARK_SQL_UUID",
    "MergeIntoKeyGenerator": "SPARK_SQL_MERGE_INTO",
}
"""Simple class name, without "Avro" -> Hudi's type of the key generator."""
COMPUTED_KEYS = frozenset(("SIMPLE", "COMPLEX", "NON_PARTITION", TIMESTAMP, "CUSTOM"))
"""Key generators whose record keys can be computed from the key fields."""


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a table that decide how its rows are read.

    Attributes:
        name: The table's name.
        version: 6, 8 or 9.
        table_type: COPY_ON_WRITE or MERGE_ON_READ.
        timeline_folder: Path of the folder with the active instants.
        history_folder: Path of the folder with archived instants.
        time_zone: "UTC", or "LOCAL" if instants are in the time zone of their writer.
        key_fields: Record key fields, empty if Hudi generates the keys.
        partition_fields: Names of the partition columns.
        ordering_fields: Names of the ordering fields, the most important first.
        key_generator: Hudi's type of the key generator, such as SIMPLE or COMPLEX, without
            ``_AVRO``. USER_PROVIDED for an unknown class, "" if nothing is stored.
        hive_style: Partition folders are named ``column=value``.
        slash_separated_dates: A date is stored as the three folders ``yyyy/MM/dd``.
        meta_fields: Rows have Hudi's five meta columns.
        merge_mode: EVENT_TIME, COMMIT_TIME or CUSTOM. Never EVENT_TIME without ordering fields.
        partial_update: Value of ``hoodie.table.partial.update.mode``, or "".
        delete_mark: A column and its value in rows of log files that are deletes, or "" and "".
        unavailable_value: The value that FILL_UNAVAILABLE is about, or "".
        base_format: Format of base files: PARQUET, ORC, HFILE or LANCE.
        metadata_partitions: Partitions of Hudi's metadata table that are complete.
        schema_json: Avro schema at the table's creation, or "".
        stored: All stored properties.
    """

    name: str
    version: int
    table_type: str
    timeline_folder: str
    history_folder: str
    time_zone: str
    key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    ordering_fields: tuple[str, ...]
    key_generator: str
    hive_style: bool
    slash_separated_dates: bool
    meta_fields: bool
    merge_mode: str
    partial_update: str
    delete_mark: tuple[str, str]
    unavailable_value: str
    base_format: str
    metadata_partitions: frozenset[str]
    schema_json: str
    stored: Mapping[str, str] = field(repr=False)

    @property
    def layout(self) -> int:
        """Version of the timeline layout: 1, or 2 with completion times in names."""
        return 1 if self.version < 8 else 2

    @property
    def stored_partition_fields(self) -> tuple[str, ...]:
        """The partition fields as they are stored. Custom key generators add ``:TYPE`` to names."""
        return _names(self.stored.get(_PARTITION_FIELDS))

    @property
    def is_merge_on_read(self) -> bool:
        """True if the table may have log files."""
        return self.table_type == MERGE_ON_READ

    @property
    def has_cdc_files(self) -> bool:
        """True if each write adds Hudi's files for change data capture."""
        return _flag(self.stored, "hoodie.table.cdc.enabled")


def parse(data: bytes, path: str = PATH) -> TableProperties:
    r"""Return the properties in the bytes of a ``hoodie.properties``.

    Raises Corrupt for damaged properties, and Unsupported for a table version, timeline layout or
    table type that cannot be read. Call :func:`refuse` before reading rows.

    >>> table = parse(
    ...     b"hoodie.table.name=trips\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version=9\n"
    ...     b"hoodie.timeline.layout.version=2\nhoodie.table.ordering.fields=ts\n"
    ... )
    >>> table.timeline_folder, table.merge_mode, table.ordering_fields
    ('.hoodie/timeline', 'EVENT_TIME_ORDERING', ('ts',))
    """
    try:
        stored = properties.decode(data)
        return from_properties(stored)
    except Corrupt as error:
        raise Corrupt(error.message, path=path, hint=error.hint) from error


def from_properties(stored: Mapping[str, str]) -> TableProperties:
    """Return the properties of a table from all its stored properties.

    Raises Corrupt and Unsupported like :func:`parse`.
    """
    version = _version(stored)
    properties.verify(stored)
    timeline, history = _folders(stored, version)
    ordering = _names(
        stored.get("hoodie.table.ordering.fields") or stored.get("hoodie.table.precombine.field")
    )
    generator = _key_generator(stored)
    return TableProperties(
        name=stored[properties.NAME],
        version=version,
        table_type=stored[properties.TYPE],
        timeline_folder=timeline,
        history_folder=history,
        time_zone=stored.get(properties.TIME_ZONE, "LOCAL").upper(),
        key_fields=_names(stored.get(_KEY_FIELDS)),
        partition_fields=_partition_fields(stored, generator),
        ordering_fields=ordering,
        key_generator=generator,
        hive_style=_flag(stored, "hoodie.datasource.write.hive_style_partitioning"),
        slash_separated_dates=_flag(
            stored, "hoodie.datasource.write.slash.separated.date.partitioning"
        ),
        meta_fields=_flag(stored, "hoodie.populate.meta.fields", default="true"),
        merge_mode=_merge_mode(stored, ordering),
        partial_update=stored.get(_PARTIAL_UPDATE, "").upper(),
        delete_mark=(stored.get(_DELETE_FIELD, ""), stored.get(_DELETE_MARKER, "")),
        unavailable_value=next(filter(None, map(stored.get, _UNAVAILABLE)), ""),
        base_format=_base_format(stored),
        metadata_partitions=frozenset(_names(stored.get(properties.METADATA_PARTITIONS))),
        schema_json=stored.get("hoodie.table.create.schema", ""),
        stored=stored,
    )


def refuse(table: TableProperties) -> None:
    """Raise Unsupported if a property changes rows in a way that mdt does not support.

    The message names the property and its value. Properties of merges are ignored for
    copy-on-write tables, because their base files are already merged.
    """
    problems = _file_problems(table)
    if table.is_merge_on_read:
        problems |= _merge_problems(table)
    for key, hint in problems.items():
        value = table.stored.get(key, "")
        raise Unsupported(f"tables with {key}={value} cannot be read", hint=hint)


def _version(stored: Mapping[str, str]) -> int:
    text = stored.get(properties.VERSION, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Corrupt(f"hoodie.properties has no valid {properties.VERSION}, but {text[:60]!r}")
    if int(text) not in VERSIONS:
        raise Unsupported(
            f"tables with {properties.VERSION}={text} cannot be read",
            hint=f"versions {', '.join(map(str, VERSIONS))} can be read; Hudi can upgrade the table"
            " or downgrade it",
        )
    return int(text)


def _folders(stored: Mapping[str, str], version: int) -> tuple[str, str]:
    """Return the folders of active and of archived instants.

    Layout 1 ignores ``hoodie.timeline.path``, which Hudi 1.x writes into tables of version 6.
    """
    if version < 8:
        return HUDI, f"{HUDI}/{_folder(stored, 'hoodie.archivelog.folder', 'archived')}"
    timeline = f"{HUDI}/{_folder(stored, 'hoodie.timeline.path', 'timeline')}"
    return timeline, f"{timeline}/{_folder(stored, 'hoodie.timeline.history.path', 'history')}"


def _folder(stored: Mapping[str, str], key: str, default: str) -> str:
    path = stored.get(key) or default
    if not is_path(path):
        raise Corrupt(f"{key}={path[:200]!r} is not the path of a folder")
    return path


def _flag(stored: Mapping[str, str], key: str, default: str = "false") -> bool:
    return stored.get(key, default).strip().lower() == "true"


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names in a list with commas."""
    return tuple(filter(None, map(str.strip, (text or "").split(","))))


def _base_format(stored: Mapping[str, str]) -> str:
    text = stored.get(_BASE_FORMAT) or stored.get(_OLD_BASE_FORMAT) or "PARQUET"
    return text.upper()


def _key_generator(stored: Mapping[str, str]) -> str:
    class_name = stored.get(_KEY_CLASS, "")
    simple_name = class_name.rpartition(".")[2].replace("Avro", "")
    if simple_name in _GENERATORS:
        return _GENERATORS[simple_name]
    type_name = stored.get(_KEY_TYPE, "").upper().removesuffix("_AVRO")
    if class_name and not type_name:
        return "USER_PROVIDED"
    return type_name


def _partition_fields(stored: Mapping[str, str], generator: str) -> tuple[str, ...]:
    """Return the partition columns. The custom key generator stores ``name:TYPE``."""
    fields = _names(stored.get(_PARTITION_FIELDS))
    if generator != "CUSTOM":
        return fields
    return tuple(name.partition(":")[0] for name in fields)


def _merge_mode(stored: Mapping[str, str], ordering: tuple[str, ...]) -> str:
    """Return the stored merge mode, or the mode that the payload class implies.

    Event-time ordering without ordering fields is the same as commit-time ordering.
    """
    mode = stored.get(_MODE, "").upper()
    strategy = (stored.get(_STRATEGY) or stored.get(_OLD_STRATEGY) or "").lower()
    payload = stored.get(_PAYLOAD) or stored.get(_LEGACY_PAYLOAD)
    if mode == CUSTOM:
        mode = _MODE_OF_STRATEGY.get(strategy, CUSTOM)
    elif not mode and payload:
        mode = _mode_of_payload(payload)
    elif not mode:
        # without a payload class, an unknown strategy means code of the user
        mode = _MODE_OF_STRATEGY.get(strategy, CUSTOM) if strategy else EVENT_TIME
    if mode == EVENT_TIME and not ordering:
        return COMMIT_TIME
    return mode if mode in (EVENT_TIME, COMMIT_TIME) else CUSTOM


def _mode_of_payload(payload: str) -> str:
    if payload in _COMMIT_TIME_PAYLOADS:
        return COMMIT_TIME
    return EVENT_TIME if payload in _EVENT_TIME_PAYLOADS else CUSTOM


def _file_problems(table: TableProperties) -> dict[str, str]:
    """Return the properties of files that are not supported, with a hint for each."""
    stored = table.stored
    problems: dict[str, str] = {}
    if table.base_format != "PARQUET":
        key = _BASE_FORMAT if _BASE_FORMAT in stored else _OLD_BASE_FORMAT
        problems[key] = "mdt reads Parquet base files only"
    if _flag(stored, "hoodie.table.multiple.base.file.formats.enable"):
        key = "hoodie.table.multiple.base.file.formats.enable"
        problems[key] = "mdt reads Parquet base files only"
    if stored.get(_LOG_FORMAT, "HOODIE_LOG").upper() != "HOODIE_LOG":
        problems[_LOG_FORMAT] = "mdt reads log files of the format HOODIE_LOG only"
    if stored.get("hoodie.bootstrap.base.path"):
        problems["hoodie.bootstrap.base.path"] = (
            "rewrite the table with Hudi, so that its base files contain all columns"
        )
    if _flag(stored, "hoodie.datasource.write.drop.partition.columns"):
        key = "hoodie.datasource.write.drop.partition.columns"
        problems[key] = "rewrite the table with the partition columns in its files"
    only = {"hoodie.table.storage.layout": "default", "hoodie.table.format": "native"}
    for key, usual in only.items():
        if stored.get(key, usual).lower() != usual:
            problems[key] = f"mdt reads tables with {key}={usual} only"
    return problems


def _merge_problems(table: TableProperties) -> dict[str, str]:
    """Return the properties of merges that are not supported, with a hint for each."""
    problems: dict[str, str] = {}
    needs_code = "mdt cannot run the code that merges the rows of this table; read it with Hudi"
    if table.merge_mode == CUSTOM:
        problems[_custom_merge_property(table.stored)] = needs_code
    if table.stored.get(_LEGACY_PAYLOAD, "") not in _DESCRIBED_PAYLOADS | {""}:
        problems[_LEGACY_PAYLOAD] = needs_code
    if table.partial_update not in ("", "NONE", IGNORE_DEFAULTS, FILL_UNAVAILABLE):
        problems[_PARTIAL_UPDATE] = "read the table with Hudi"
    for key in sorted(table.stored):
        if key.startswith(_MERGE_PROPERTY) and key not in _MERGE_PROPERTIES:
            problems[key] = needs_code
    if bool(table.delete_mark[0]) != bool(table.delete_mark[1]):
        key = _DELETE_FIELD if table.delete_mark[0] else _DELETE_MARKER
        problems[key] = f"it needs {_DELETE_FIELD} and {_DELETE_MARKER}"
    if not table.meta_fields:
        problems |= dict(_key_problems(table))
    return problems


def _custom_merge_property(stored: Mapping[str, str]) -> str:
    """Return the property that names the code of a custom merge."""
    mode = stored.get(_MODE, "").upper()
    if mode not in ("", CUSTOM):
        return _MODE
    keys = (_PAYLOAD, _LEGACY_PAYLOAD, _STRATEGY, _OLD_STRATEGY)
    if mode == CUSTOM:
        keys = (_STRATEGY, _OLD_STRATEGY, _PAYLOAD, _MODE)
    return next(key for key in keys if stored.get(key))


def _key_problems(table: TableProperties) -> Iterator[tuple[str, str]]:
    """Yield properties without which record keys that are not stored cannot be computed."""
    hint = "without meta columns, log files can only be merged if mdt can compute the record keys"
    if not table.key_fields:
        yield _KEY_FIELDS, hint
    elif table.key_generator not in COMPUTED_KEYS:
        yield (_KEY_CLASS if _KEY_CLASS in table.stored else _KEY_TYPE), hint
