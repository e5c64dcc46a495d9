"""The rule of the model that writes numbered batches, each perhaps again."""

from __future__ import annotations

from counting import count
from hypothesis import strategies as st
from hypothesis.stateful import rule
from model_overwriting import OverwritingRules


class OnceRules(OverwritingRules):
    """Batches of a stream, for machines that have a model; which batch is the newest outlives
    whatever the table goes through.
    """

    newest_batch = -1
    texts = frozenset[str]()

    @rule(data=st.data())
    def upsert_once(self, data: st.DataObject) -> None:
        """A batch of a stream is upserted; other rows under its number, or an older one, change
        nothing.
        """
        batch = data.draw(self._rows(min_size=1, max_size=4))
        self.newest_batch += data.draw(st.integers(1, 3), label="numbers on")
        writer = self._writer(data).once("model", self.newest_batch)
        self._expect(writer.upsert(self._arrow(batch)), self._put(batch))
        older = data.draw(st.integers(0, self.newest_batch), label="again")
        again = self._writer(data).once("model", older)
        others = self._arrow(data.draw(self._rows(min_size=1, max_size=4)))
        done = (
            again.delete_where(None)
            if data.draw(st.booleans(), label="a delete")
            else again.upsert(others)
        )
        assert not done.instant and done.inserted + done.updated + done.deleted == 0
        assert again.snapshot().streams.batches["model"][0] == self.newest_batch
        count("batches of the model that are written twice")
        self._compare_pruned(data)

    @rule(data=st.data(), text=st.sampled_from("abcdef"))
    def upsert_once_by_text(self, data: st.DataObject, text: str) -> None:
        """A batch with a text id is upserted if the table has none with it, whatever the numbers of
        its stream are.
        """
        batch = data.draw(self._rows(min_size=1, max_size=4))
        done = self._writer(data).once("model", text).upsert(self._arrow(batch))
        if text in self.texts:
            assert not done.instant and done.inserted + done.updated + done.deleted == 0
        else:
            self._expect(done, self._put(batch))
            self.texts = self.texts | {text}
        count("batches of the model with text ids")
        self._compare_pruned(data)
