"""A Parquet file's statistics in the words of Delta's log, so that readers pass over files without opening them."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyarrow import parquet

COLUMNS_MAX = 32
"""Delta's own default (delta.dataSkippingNumIndexedCols)."""
TEXT_MAX = 32


def statistics(metadata: parquet.FileMetaData) -> str:
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(min(metadata.num_columns, COLUMNS_MAX)):
        name = metadata.schema.column(index).path
        if "." in name:
            continue  # of what lies in structs nobody asks
        pieces = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if any(piece is None or not piece.has_null_count for piece in pieces):
            continue
        nulls[name] = sum(piece.null_count for piece in pieces)
        low, high = _bounds([piece for piece in pieces if piece.null_count < piece.num_values + piece.null_count])
        if low is not None and high is not None:
            lowest[name], highest[name] = low, high
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls},
        allow_nan=False,
    )


def _bounds(pieces: list[Any]) -> tuple[Any, Any]:
    if not pieces or not all(piece.has_min_max for piece in pieces):
        return None, None
    try:
        low, high = min(piece.min for piece in pieces), max(piece.max for piece in pieces)
    except (OverflowError, UnicodeDecodeError):
        return None, None  # years behind 9999, and texts that are none: Python has neither
    return _low(low), _high(high)


def _low(value: Any) -> Any:
    match value:
        case datetime():
            return _milliseconds(value)
        case _:
            return _plain(value)


def _high(value: Any) -> Any:
    """Delta cuts timestamps to milliseconds: a bound from above has to be rounded up."""
    match value:
        case datetime():
            try:
                return _milliseconds(value + timedelta(microseconds=999))
            except OverflowError:
                return None
        case _:
            return _plain(value)


def _plain(value: Any) -> Any:
    """None where nothing true can be said: longer texts would have to be cut, and beside a float there may be NaN."""
    match value:
        case bool():
            return None
        case int():
            return value
        case str():
            return value if len(value) <= TEXT_MAX else None
        case date():
            return value.isoformat()
        case _:
            return None


def _milliseconds(value: datetime) -> str:
    utc = value.astimezone(UTC) if value.tzinfo else value
    return utc.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
