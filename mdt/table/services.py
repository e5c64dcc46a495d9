"""Looking after a table: compaction, rollback, check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdt import logs
from mdt.progress import ProgressOption, shown
from mdt.table.handle import Handle
from mdt.write.result import WriteResult

if TYPE_CHECKING:
    from mdt.commit.recovery import Recovery
    from mdt.services.check import CheckReport


class Services(Handle):
    """What keeps a table in good order; rows stay as they are."""

    def compact(self, progress: ProgressOption = None) -> WriteResult:
        """Rewrite file groups with log files or deleted rows as base files; rows stay as they are."""
        from mdt.services.compaction import Compaction

        with shown(progress, "compact") as told, logs.service(self._storage, self.definition.name, "compact") as facts:
            self._before_write()
            done = self._commit(Compaction(self._metadata, self.options, told))
            facts["file_groups"] = len(done.plan.groups)
        return WriteResult.of(done)

    def rollback(self) -> Recovery:
        """Roll back every unfinished transaction now, running ones of other writers included (they will retry)."""
        from mdt.commit.recovery import recover

        self._before_write(roll_back=False)
        return recover(self._metadata, after_seconds=0)

    def check(self, progress: ProgressOption = None) -> CheckReport:
        """Recompute everything that can be recomputed and compare; the report names file and byte."""
        from mdt.services.check import check

        with shown(progress, "check") as told, logs.service(self._storage, self.definition.name, "check") as facts:
            report = check(self._metadata, self._metadata.newest(), progress=told)
            facts.update(files=report.files, rows=report.rows, bytes=report.bytes, problems=len(report.problems))
        return report
