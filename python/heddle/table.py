"""Tables that print as text in a terminal and as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, overload

__all__ = ["Table", "format_bytes", "format_seconds"]


def format_seconds(seconds: float) -> str:
    """A time with its unit.

    >>> from heddle.table import format_seconds
    >>> format_seconds(0.0123), format_seconds(2.5)
    ('12.30 ms', '2.50 s')
    """
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


def format_bytes(size: float) -> str:
    """A size with its unit.

    >>> from heddle.table import format_bytes
    >>> format_bytes(1536), format_bytes(12)
    ('1.50 KiB', '12 B')
    """
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size) >= 1 << power:
            return f"{size / (1 << power):.2f} {unit}"
    return f"{size:.0f} B"


class Table(Sequence[Mapping[str, Any]]):
    """Rows with named columns. A row is a dictionary.

    >>> from heddle.table import Table
    >>> rows = Table([dict(name="dce", removed=2), dict(name="cse", removed=0)])
    >>> rows
    name  removed
    dce         2
    cse         0
    >>> rows[0]["removed"], len(rows)
    (2, 2)
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        shown: Mapping[str, str] | None = None,
    ) -> None:
        """`shown` has the columns to print, and how: `time` with `seconds`, `size` with `bytes`."""
        self._rows = list(rows)
        keys = dict.fromkeys(key for row in self._rows for key in row)
        self._shown = dict(shown) if shown is not None else dict.fromkeys(keys, "")

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(index, slice):
            return Table(self._rows[index], self._shown)
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    def _cell(self, row: Mapping[str, Any], key: str) -> str:
        value = row.get(key)
        if value is None:
            return ""
        kind = self._shown[key]
        if kind == "seconds":
            return format_seconds(value)
        if kind == "bytes":
            return format_bytes(value)
        return (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )

    def __str__(self) -> str:
        columns = [[key, *(self._cell(row, key) for row in self._rows)] for key in self._shown]
        widths = [max(map(len, column)) for column in columns]
        right = [
            any(isinstance(row.get(key), (int, float)) for row in self._rows) for key in self._shown
        ]
        lines = []
        for cells in zip(*columns, strict=True):
            padded = (
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(cells, widths, right, strict=True)
            )
            lines.append("  ".join(padded).rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(key)}</th>" for key in self._shown)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{escape(self._cell(row, key))}</td>" for key in self._shown)
            + "</tr>"
            for row in self._rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
