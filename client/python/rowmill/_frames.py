"""Converts frames of other libraries to Arrow, and adds columns to them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def library(frame: Any) -> str:
    """Returns the name of the library of a frame, such as pandas."""
    return type(frame).__module__.partition(".")[0].removeprefix("_")


def to_arrow(frame: Any, columns: list[str]) -> pa.Table:
    """Returns columns of a frame as an Arrow table. If the frame lacks one, the error is a
    KeyError."""
    kind = library(frame)
    if kind == "pandas":
        table = pa.Table.from_pandas(_select(frame, list(frame.columns), columns), preserve_index=False)
    elif kind == "datasets":
        table = _select(frame.with_format("arrow"), frame.column_names, columns, "select_columns")[:]
    elif hasattr(frame, "__arrow_c_stream__"):
        table = pa.table(frame)
    else:
        raise TypeError(f"{type(frame).__name__} is no frame: give a pandas or polars DataFrame, a pyarrow Table, a datasets.Dataset or a DuckDB relation")
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise KeyError(f"the frame has no column {missing[0]!r}, which the prompt names; it has {', '.join(table.column_names)}")
    return table.select(columns)


def _select(frame: Any, have: list[str], columns: list[str], method: str | None = None) -> Any:
    """Returns the frame with those of the columns that it has."""
    wanted = [name for name in columns if name in have] or have
    return getattr(frame, method)(wanted) if method else frame[wanted]


def names_of(frame: Any) -> list[str]:
    """Returns the names of the columns of a frame."""
    names = frame.column_names if library(frame) in ("datasets", "pyarrow") else getattr(frame, "columns", None)
    return [str(name) for name in (pa.table(frame).column_names if names is None else names)]


def head(frame: Any, rows: int) -> Any:
    """Returns the first rows of a frame."""
    kind = library(frame)
    if kind in ("pandas", "polars"):
        return frame.head(rows)
    if kind == "datasets":
        return frame.select(range(min(rows, len(frame))))
    if kind == "duckdb":
        return frame.limit(rows)
    return pa.table(frame).slice(0, rows)


def add_columns(frame: Any, columns: dict[str, pa.ChunkedArray]) -> Any:
    """Returns the frame with more columns. A frame of an unknown library becomes an Arrow
    table."""
    kind = library(frame)
    if kind == "pandas":
        index = frame.index
        return frame.assign(**{name: column.to_pandas().set_axis(index) for name, column in columns.items()})
    if kind == "polars":
        import polars

        return frame.with_columns(polars.Series(name, column) for name, column in columns.items())
    if kind == "datasets":
        for name, column in columns.items():
            frame = frame.add_column(name, column.to_pylist())
        return frame
    rowmill_answers = pa.table(frame)
    for name, column in columns.items():
        rowmill_answers = rowmill_answers.append_column(name, column)
    if kind == "duckdb":  # DuckDB finds the variable by its name; the new relation has the connection of the frame
        return frame.query("rowmill_rows", "from rowmill_answers")
    return rowmill_answers
