"""Tables of results, and the data frames they become."""

from __future__ import annotations

import html
import importlib
import os
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from ._terrace import RequestError, write_parquet

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: The largest number that a signed column of 64 bits holds.
_SIGNED = 2**63 - 1

#: What a notebook shows of a table; more makes pages slow and nobody reads it.
_SHOWN_ROWS, _SHOWN_COLUMNS = 40, 16


def html_table(names: Sequence[str], rows: Sequence[Sequence[Any]], left_out: str = "") -> str:
    """A plain table for notebooks, with every text escaped.

    >>> html_table(["a<b"], [[None]])
    '<table><thead><tr><th>a&lt;b</th></tr></thead><tbody><tr><td></td></tr></tbody></table>'
    """

    def row(cells: Sequence[Any], tag: str) -> str:
        texts = ("" if cell is None else html.escape(str(cell)) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    below = f"<p>{html.escape(left_out)}</p>" if left_out else ""
    return f"<table><thead>{row(names, 'th')}</thead><tbody>{body}</tbody></table>{below}"


def _library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RequestError(f"{what} needs {name}, which is not installed; pip install {name}") from error


def _is_large(values: Sequence[int | None]) -> bool:
    return any(value is not None and value > _SIGNED for value in values)


class Table:
    """Rows with named, typed columns: what every result of Terrace can be turned into.

    Libraries are imported when they are asked for, so none of them needs to be installed.

    >>> table = Table({"design": ("text", ["a", "b"]), "walks": ("integer", [3, None])})
    >>> table.column_names, len(table)
    (['design', 'walks'], 2)
    >>> list(table)
    [{'design': 'a', 'walks': 3}, {'design': 'b', 'walks': None}]
    """

    def __init__(self, columns: dict[str, tuple[str, list[Any]]]) -> None:
        self._columns = columns

    def _of_columns(self) -> dict[str, tuple[str, list[Any]]]:
        return self._columns

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in their order."""
        return list(self._of_columns())

    def __len__(self) -> int:
        return next((len(values) for _, values in self._of_columns().values()), 0)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary per row."""
        columns = self._of_columns()
        values = zip(*(values for _, values in columns.values()))
        return [dict(zip(columns, row)) for row in values]

    def to_dict(self) -> dict[str, list[Any]]:
        """The values of each column."""
        return {name: values for name, (_, values) in self._of_columns().items()}

    def to_pandas(self) -> "pandas.DataFrame":
        """As a pandas frame. Columns of counts, or of true and false, with gaps have pandas' own nullable types."""
        pandas = _library("pandas", "to_pandas")
        frame = {}
        for name, (kind, values) in self._of_columns().items():
            if kind == "integer":
                width = "uint64" if _is_large(values) else "int64"
                dtype: Any = width.replace("i", "I").replace("u", "U") if None in values else width
            else:
                dtype = {"real": "float64", "boolean": "boolean" if None in values else "bool"}.get(kind, "object")
            if kind == "text":
                frame[name] = pandas.Series(values, dtype=None if values else dtype)
            else:
                frame[name] = pandas.Series(values, dtype=dtype)
        return pandas.DataFrame(frame)

    def to_polars(self) -> "polars.DataFrame":
        """As a Polars frame."""
        polars = _library("polars", "to_polars")
        series = []
        for name, (kind, values) in self._of_columns().items():
            integer = polars.UInt64 if _is_large(values if kind == "integer" else []) else polars.Int64
            kinds = {"text": polars.String, "boolean": polars.Boolean, "integer": integer, "real": polars.Float64}
            dtype = kinds[kind]
            series.append(polars.Series(name, values, dtype=dtype))
        return polars.DataFrame(series)

    def to_arrow(self) -> "pyarrow.Table":
        """As an Arrow table."""
        pyarrow = _library("pyarrow", "to_arrow")
        arrays = {}
        for name, (kind, values) in self._of_columns().items():
            integer = pyarrow.uint64() if _is_large(values if kind == "integer" else []) else pyarrow.int64()
            kinds = {"text": pyarrow.string(), "boolean": pyarrow.bool_(), "integer": integer, "real": pyarrow.float64()}
            arrays[name] = pyarrow.array(values, kinds[kind])
        return pyarrow.table(arrays)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes a Parquet file. Needs no library."""
        write_parquet(self._of_columns(), os.fspath(path))

    def _repr_html_(self) -> str:
        """What a notebook shows: the first columns and rows, as a plain table."""
        columns = self._of_columns()
        shown = list(columns)[:_SHOWN_COLUMNS]
        rows = list(zip(*(columns[name][1][:_SHOWN_ROWS] for name in shown)))
        count, more = len(self), len(columns) - len(shown)
        left = [(count - len(rows), "row"), (more, "column")]
        parts = [f"{number} more {what}{'s' * (number != 1)}" for number, what in left if number > 0]
        return html_table(shown, rows, f"and {' and '.join(parts)}: to_pandas() has all" if parts else "")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table for any library that speaks Arrow's interface for Python (DuckDB, Polars, pandas 3)."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
