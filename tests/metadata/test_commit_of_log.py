"""Whether a commit record is that of one transaction, told by its first bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import mdt
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log


def test_a_record_begins_with_its_transaction_and_with_no_other(tmp_path: Path) -> None:
    columns = [(f"column_{number}", pa.int64()) for number in range(300)]
    table = mdt.create(tmp_path / "t", pa.schema([("id", pa.int64()), *columns]), key=["id"])
    table.insert(pa.table({"id": [1], **{name: [1] for name, _ in columns}}))
    table.delete([{"id": 1}])
    storage = table.metadata.storage
    txns = [str(row["txn"]) for row in table.history().to_pylist()]
    for seq, txn in enumerate(txns):
        assert commit_log.begins_with(storage, seq, txn)
        assert not commit_log.begins_with(storage, seq, txns[seq - 1])
    assert not commit_log.begins_with(storage, len(txns), txns[-1]), "there is none"
    assert (
        min(storage.size(paths.commit(seq)) or 0 for seq in range(len(txns)))
        > commit_log._TXN_WITHIN
    )
