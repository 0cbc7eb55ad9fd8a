"""Answers of the studies that search: documents whose fields are attributes, with their main table."""

from __future__ import annotations

from typing import Any, Sequence

from ._inputs import text_of
from ._table import Table


def _kind(values: Sequence[Any]) -> str:
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, bool) for value in present):
        return "boolean"
    if present and all(isinstance(value, int) and not isinstance(value, bool) for value in present):
        return "integer"
    if present and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present):
        return "real"
    return "text"


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[str, list[Any]]]:
    """Rows by columns; fields of inner documents have their names joined by a dot, lists of them are left out."""

    def flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        cells: dict[str, Any] = {}
        for key, value in row.items():
            if isinstance(value, dict):
                cells.update(flat(value, f"{prefix}{key}."))
            elif not isinstance(value, list):
                cells[prefix + key] = value
        return cells

    cells = [flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in cells for name in row))
    # An inner document that is absent in one row is a gap in its columns, and no column of its own.
    names = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    columns = {}
    for name in names:
        values = [row.get(name) for row in cells]
        kind = _kind(values)
        if kind == "text":
            values = [None if value is None else text_of(value) for value in values]
        columns[name] = (kind, values)
    return columns


class _Answer(Table):
    """A document; its fields are attributes."""

    _rows = ""

    def __init__(self, document: dict[str, Any], text: str | None = None) -> None:
        self._document = document
        self._text = text

    def __str__(self) -> str:
        """The answer as the command line shows it."""
        return repr(self) if self._text is None else self._text

    def __bool__(self) -> bool:
        """An answer is one, also where its table has no row."""
        return True

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_document"][name]
        except KeyError:
            fields = ", ".join(self.__dict__.get("_document", {}))
            raise AttributeError(f"{type(self).__name__} has no field {name!r}; it has {fields}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._document]

    def _of_columns(self) -> dict[str, tuple[str, list[Any]]]:
        return _columns(self._document[self._rows])

    @property
    def document(self) -> dict[str, Any]:
        """The whole answer, as ``--json`` of the command writes it."""
        return self._document


class Advice(_Answer):
    """How much memory can be slow, or whether huge pages are right. As a table: what came of each policy, or of each way of
    using pages.
    """

    @property
    def _rows(self) -> str:  # type: ignore[override]
        return "ways" if "ways" in self._document else "policies"

    def __repr__(self) -> str:
        return f"<terrace.Advice on {self.input}>"


class Tuned(_Answer):
    """What a search of a policy's parameters found. As a table: the parameters, those that matter most first."""

    _rows = "parameters"

    def __repr__(self) -> str:
        return f"<terrace.Tuned {self.policy} on {self.input}: gain {self.gain:.1%}>"


class Claims(_Answer):
    """Published results beside ours. As a table: a row per claim."""

    _rows = "claims"

    def __repr__(self) -> str:
        count = len(self._document["claims"])
        return f"<terrace.Claims: {self.reproduced} of {count} reproduced>"


class Hints(_Answer):
    """How large and how hot data structures are, and the file that says so. As a table: a row per allocation site."""

    _rows = "sites"

    def __fspath__(self) -> str:
        return str(self._document["file"])

    def __repr__(self) -> str:
        return f"<terrace.Hints {self.file}: {len(self.sites)} sites of {self.program}>"


class Recording(_Answer):
    """A trace that was written."""

    def _of_columns(self) -> dict[str, tuple[str, list[Any]]]:
        return _columns([{name: value for name, value in self._document.items() if name != "schema"}])

    def __fspath__(self) -> str:
        return str(self._document["trace"])

    def __repr__(self) -> str:
        return f"<terrace.Recording {self.trace}: {self.accesses} accesses>"
