"""What has the form of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas
    import polars


class Tabular(ABC):
    """A table of pyarrow that is also a frame of pandas and of polars."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Returns the table."""

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the table as a frame of pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Returns the table as a frame of polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame
