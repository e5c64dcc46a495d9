"""Validation of commit record headers: every field against its grammar and the other fields.

Readers act on records: they open the paths, read the lengths and use the numbers as array
positions.  This module checks what needs neither storage nor other records.  Checks such as dead
positions within their segment, or the size of a file, are made where both sides are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from mdt.errors import Corrupt
from mdt.limits import COUNT_MAX, LIST_ITEMS_MAX, NAME_BYTES_MAX, OPTION_BYTES_MAX, TEXTS_MAX
from mdt.metadata.log import tags
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.imports import are_groups, are_imports
from mdt.metadata.log.retention import is_retention
from mdt.metadata.log.streams import is_batch
from mdt.schema.definition import is_key_hash

UPGRADED_VERSION = 9
"""Hudi's table version after an upgrade."""


def _is_list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list) and len(value) <= LIST_ITEMS_MAX and all(map(holds, value))
    )


def is_text(value: Any) -> bool:
    """Return True if a value is text that may be a name: at most NAME_BYTES_MAX characters, without
    NUL. Older writers did not count bytes.
    """
    return isinstance(value, str) and len(value) <= NAME_BYTES_MAX and "\0" not in value


def _is_text_or_null(value: Any) -> bool:
    return value is None or is_text(value)


def _is_object_of(fields: Mapping[str, Callable[[Any], bool]]) -> Callable[[Any], bool]:
    """Return a test that a value is an object whose known fields, if present, pass their tests."""
    return lambda value: (
        isinstance(value, dict)
        and all(holds(value[name]) for name, holds in fields.items() if name in value)
    )


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(
        names.is_number(count, 0, COUNT_MAX) for count in value.values()
    )


def _are_options(value: Any) -> bool:
    """Return True if ``value`` is an object of at most TEXTS_MAX options, each text or null."""
    is_few = isinstance(value, dict) and len(value) <= TEXTS_MAX
    return is_few and all(map(is_text, value)) and all(map(_is_option, value.values()))


def _is_option(value: Any) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= OPTION_BYTES_MAX)


_SPECS = _is_list_of(is_text)


def _are_plans(value: Any) -> bool:
    """Return True if ``value`` maps instants of index plans to lists of specifications."""
    return (
        isinstance(value, dict)
        and all(map(names.is_instant, value))
        and all(map(_SPECS, value.values()))
    )


_REQUIRED: Mapping[str, Callable[[Any], bool]] = {
    "txn": names.is_txn,
    "instant": names.is_instant,
    "action": lambda value: isinstance(value, str) and value in names.ACTIONS,
    "operation": names.is_word,
    "begun_at": lambda value: names.is_number(value, -1, COUNT_MAX),
}
_OPTIONAL: Mapping[str, Callable[[Any], bool]] = {
    "completion": names.is_instant,
    "hudi_version": lambda value: type(value) is int and value == UPGRADED_VERSION,
    "token": names.is_token,
    "unsaved": names.is_instant,
    "restored": names.is_instant,
    "counts": _are_counts,
    "rolled_back": _is_list_of(names.is_txn),
    "dead": _is_object_of(
        {"instants": _is_list_of(names.is_instant), "tokens": _is_list_of(names.is_token)}
    ),
    "indexes": _is_object_of({"add": _SPECS, "drop": _SPECS, "forget": _SPECS}),
    "indexing": _is_object_of(
        {"plan": _SPECS, "done": _are_plans, "dropped": _is_list_of(names.is_instant)}
    ),
    "definition": lambda value: isinstance(value, dict),
    "key_hash": is_key_hash,
    "schema": lambda value: isinstance(value, dict) and {"schema", "ids"} <= value.keys(),
    "left_out": _is_list_of(
        lambda path: names.is_data_file(path) or names.stored_of(path) is not None
    ),
    "replaced": lambda value: (
        isinstance(value, dict)
        and all(map(names.is_partition, value))
        and all(map(_SPECS, value.values()))
    ),
    "clustering_plan": _is_list_of(
        _is_object_of(
            {
                "slices": _is_list_of(
                    _is_object_of(
                        {
                            "dataFilePath": _is_text_or_null,
                            "deltaFilePaths": _SPECS,
                            "fileId": is_text,
                            "partitionPath": names.is_partition,
                        }
                    )
                ),
                "outputs": _SPECS,
            }
        )
    ),
    "stream": is_batch,
    "imported": are_imports,
    "unsettled": are_groups,
    "without_changes": lambda value: value is True,
    "metadata": names.is_metadata,
    "options": _are_options,
    "forgets_deletes": lambda value: value is True,
    "ended_versions": _is_list_of(lambda seq: names.is_number(seq, 0, COUNT_MAX)),
    "clean": _is_object_of({"policy": is_text, "earliest": names.is_instant, "action": is_text}),
    "compaction_plan": _is_list_of(
        _is_object_of(
            {
                "baseInstantTime": is_text,
                "deltaFilePaths": _SPECS,
                "dataFilePath": _is_text_or_null,
                "fileId": is_text,
                "partitionPath": names.is_partition,
            }
        )
    ),
}
_OF_ACTION: Mapping[str, str] = {
    "hudi_version": names.UPGRADE,
    "retention": "clean",
    "replaced": "replacecommit",
    "tags": "tag",
    "ended_versions": "clean",
    **dict.fromkeys(("imported", "unsettled", "without_changes"), names.IMPORT),
    **dict.fromkeys(("indexing", "key_hash"), "index"),
}
"""Fields that only records of one action have."""
_ALWAYS = frozenset(("hudi_version", "retention", "replaced", "tags"))
"""Those that all records of their action have."""
_SECRET = frozenset(("definition", "key_hash"))
"""Fields with secrets, which messages do not show."""
_OF_A_PLAN = frozenset(
    ("baseInstantTime", "deltaFilePaths", "dataFilePath", "fileId", "partitionPath")
)
_OF_A_SLICE = _OF_A_PLAN - {"baseInstantTime"}
_PARTIAL_OPERATIONS = frozenset(("log_compact", "cluster"))
"""Operations that, like all compactions, may commit a part of the files that they wrote."""


def check_header(header: Mapping[str, Any], seq: int, path: str) -> None:
    """Raise Corrupt unless ``header`` is a valid header of record ``seq``.

    ``path`` is for the message.
    """
    if type(header.get("seq")) is not int or header["seq"] != seq:
        corrupt("a commit record has a wrong number", path, str(seq), repr(header.get("seq")))
    for name in _REQUIRED:
        if name not in header:
            corrupt(f"a commit record lacks the field {name}", path, "", "")
    for name, holds in (*_REQUIRED.items(), *_OPTIONAL.items()):
        if name in header and not holds(header[name]):
            got = "something else" if name in _SECRET else repr(header[name])
            corrupt(f"the field {name} of a commit record is invalid", path, "its grammar", got)
    if (header["action"] == "create") != (seq == 0) or header["begun_at"] >= max(seq, 1):
        order = "create at 0, then records begun before their seq"
        corrupt("a commit record is out of order", path, order, f"record {seq}")
    _check_action(header, path)
    _check_times(header, path)
    _check_left_out(header, path)
    if "retention" in header and not is_retention(header["retention"], seq - 1):
        retention = repr(header["retention"])
        corrupt("the retention of a commit record is invalid", path, "its grammar", retention)
    _check_tags(header, seq, path)
    if not all(operation.keys() >= _OF_A_PLAN for operation in header.get("compaction_plan", ())):
        corrupt("a compaction plan lacks a field", path, ", ".join(sorted(_OF_A_PLAN)), "")
    _check_clustering(header, path)


def _check_action(header: Mapping[str, Any], path: str) -> None:
    """Check that the fields of a record are those of its action and operation."""
    action, operation = header["action"], header["operation"]
    for name, owner in _OF_ACTION.items():
        is_present, is_owner = name in header, action == owner
        if (is_present and not is_owner) or (is_owner and name in _ALWAYS and not is_present):
            message = f"the field {name} of a commit record does not match its action"
            corrupt(message, path, f"{name} in {owner} records only", action)
    if "key_hash" in header and operation != "rekey":
        corrupt("only rekey records change the key hash", path, "operation rekey", operation)
    is_partial = action == "compaction" or operation in _PARTIAL_OPERATIONS
    if "left_out" in header and not is_partial:
        corrupt(
            "only compactions and clusterings leave out files",
            path,
            "action compaction, or operation log_compact or cluster",
            f"{action}, {operation}",
        )


def _check_times(header: Mapping[str, Any], path: str) -> None:
    """Check the order of the instants in a record."""
    instant, indexing = header["instant"], header.get("indexing", {})
    completion, restored = header.get("completion", "~"), header.get("restored", "")
    if completion <= instant:
        after = f"a time after {instant}"
        corrupt("a commit record completes before it begins", path, after, completion)
    if any(ended > instant for ended in (*indexing.get("done", {}), *indexing.get("dropped", ()))):
        until = f"up to {instant}"
        corrupt("a commit record ends a newer index build", path, until, repr(indexing))
    if "restored" in header and (header["operation"] != "restore" or restored >= instant):
        before = f"a snapshot before {instant}"
        corrupt("only restore records name an older snapshot", path, before, restored)


def _check_left_out(header: Mapping[str, Any], path: str) -> None:
    """Check that a record leaves out only files of its own transaction."""
    instant, token = header["instant"], header.get("token")
    for removed in header.get("left_out", ()):
        if not names.is_written_by(removed, instant, token):
            message = "a commit record leaves out a file of another transaction"
            corrupt(message, path, f"{token}, {instant}", removed)


def _check_clustering(header: Mapping[str, Any], path: str) -> None:
    """Check that a clustering plan is complete and has the file groups of ``replaced``."""
    plan = header.get("clustering_plan")
    if plan is None:
        return
    slices = [slice_ for unit in plan for slice_ in unit.get("slices", ())]
    if not all(unit.keys() >= {"slices", "outputs"} for unit in plan) or not all(
        slice_.keys() >= _OF_A_SLICE for slice_ in slices
    ):
        corrupt("a clustering plan lacks a field", path, ", ".join(sorted(_OF_A_SLICE)), "")
    replaced = header.get("replaced", {})
    replaced_groups = sorted(
        (partition, name) for partition, names_ in replaced.items() for name in names_
    )
    if replaced_groups != sorted((slice_["partitionPath"], slice_["fileId"]) for slice_ in slices):
        corrupt(
            "a clustering plan does not match the replaced file groups",
            path,
            "the replaced groups",
            "other groups",
        )


def _check_tags(header: Mapping[str, Any], seq: int, path: str) -> None:
    """Check that tags name older snapshots."""
    if "tags" in header and not tags.are_changes(header["tags"], seq - 1):
        corrupt(
            "the tag changes of a commit record are invalid",
            path,
            "its grammar",
            repr(header["tags"]),
        )
    if "savepoint" in header and not tags.is_savepoint(
        header["savepoint"], header.get("tags", {}).get("add", {})
    ):
        corrupt(
            "the savepoint of a commit record is invalid",
            path,
            "its grammar",
            repr(header["savepoint"]),
        )


def corrupt(message: str, path: str, expected: str, actual: str) -> NoReturn:
    """Raise Corrupt for a record.  ``actual`` is cut to 80 characters."""
    raise Corrupt(message, path=path, expected=expected, got=actual[:80])
