"""Rows that are read when somebody asks for them, as Arrow's stream protocol has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from mdt.errors import Invalid


class ArrowStream(ABC):
    """Rows with a schema, streamed from the beginning as often as they are asked for."""

    schema: pa.Schema

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, streamed."""

    @abstractmethod
    def _prepare(self) -> None:
        """Raise what can be known before the first row is read."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, streamed as by :meth:`to_batches`; errors of ours pass through it as they are."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow C stream, from the beginning at every call.

        Raises what planning raises.  An error while rows are read ends the stream: its consumer raises an error of its
        own with our text.
        """
        self._prepare()
        try:
            return self.to_reader().__arrow_c_stream__(requested_schema)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(
                f"the rows cannot have the schema that is asked for: {error}", hint="cast the result"
            ) from error

    def __arrow_c_schema__(self) -> object:
        """Return the schema of the rows as an Arrow C schema; nothing is read."""
        return self.schema.__arrow_c_schema__()
