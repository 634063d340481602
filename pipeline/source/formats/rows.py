"""Values decoded one by one by a function compiled from their schema, and the columns that they become."""

import linecache
from collections.abc import Callable, Sequence
from struct import error as StructError
from typing import Any

import pyarrow as pa

DecodeRow = Callable[[bytes], tuple[Any, ...]]


class FaultError(ValueError):
    """Why a value is not what its schema says."""


FAULTS = (FaultError, IndexError, StructError, UnicodeDecodeError, OverflowError, ValueError, ArithmeticError)


class Rows:
    """What every format decoded so has in common."""

    def __init__(self, schema: pa.Schema, decode_row: DecodeRow) -> None:
        self.schema = schema
        self._decode_row = decode_row
        self._blank = (None,) * len(schema)

    def decode(self, values: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        rows: list[tuple[Any, ...]] = []
        faults: list[str | None] = []
        decode_row, blank = self._decode_row, self._blank
        for value in values.to_pylist():
            fault = None
            try:
                rows.append(blank if value is None else decode_row(value))
            except FAULTS as error:
                rows.append(blank)
                fault = said(error)
            faults.append(fault)
        columns = self._columns(rows, faults)
        return columns, pa.array(faults, pa.string())

    def _columns(self, rows: list[tuple[Any, ...]], faults: list[str | None]) -> list[pa.Array]:
        try:
            return self._converted(rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            for number, row in enumerate(rows):
                try:
                    self._converted([row])
                except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                    rows[number], faults[number] = self._blank, said(error)
            return self._converted(rows)

    def _converted(self, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        columns = zip(*rows, strict=True) if rows else ((),) * len(self.schema)
        return [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]


def said(error: Exception) -> str:
    if isinstance(error, IndexError | StructError):
        return "the value ends too early"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class Source:
    """Python source that is written line by line."""

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.depth = 1
        self._count = 0

    def name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count}"

    def emit(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def function(self, title: str, names: dict[str, Any]) -> Callable[..., Any]:
        """The function ``decode`` of what was written."""
        text = "\n".join(self.lines) + "\n"
        file = f"<decode {title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # tracebacks show the line
        namespace = dict(names)
        exec(compile(text, file, "exec"), namespace)  # noqa: S102 -- our own source: of a schema it has numbers and quoted texts
        found: Callable[..., Any] = namespace["decode"]
        return found


def more_varint(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint of up to ten bytes, of which the first (above 127) was read."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise FaultError("a number is longer than 64 bits")
    return value & 0xFFFFFFFFFFFFFFFF, pos


def overrun(count: int) -> FaultError:
    return FaultError(f"a list of {count} is longer than the value")


def behind(count: int) -> FaultError:
    if count < 0:
        return FaultError("the value ends too early")
    return FaultError(f"there are {count} bytes behind the value")
