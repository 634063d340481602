"""From which offsets of which partitions the rows of a batch come, as far as its columns tell."""

from typing import Any

import pyarrow as pa

Ranges = dict[tuple[str, int], tuple[int, int, int]]
"""Of (topic, partition): first offset, last, and how many rows."""
Named = dict[str, dict[str, list[int]]]
"""The same as JSON has it, in the shape of offsets in a checkpoint."""


def ranges(batch: pa.RecordBatch, columns: tuple[str, str, str]) -> Ranges:
    table = pa.table([batch[name] for name in columns], names=["t", "p", "o"])
    found = table.group_by(["t", "p"]).aggregate([("o", "min"), ("o", "max"), ("o", "count")])
    rows = zip(*(found[name].to_pylist() for name in ("t", "p", "o_min", "o_max", "o_count")), strict=True)
    return {(t, p): (low, high, count) for t, p, low, high, count in rows if None not in (t, p, low)}


def join(into: Ranges, more: Ranges) -> None:
    for key, (first, last, rows) in more.items():
        if (known := into.get(key)) is not None:
            first, last, rows = min(first, known[0]), max(last, known[1]), rows + known[2]
        into[key] = (first, last, rows)


def named(found: Ranges) -> Named:
    names: Named = {}
    for (topic, partition), values in sorted(found.items()):
        names.setdefault(topic, {})[str(partition)] = list(values)
    return names


def tells_offsets(schema: Any, columns: tuple[str, ...]) -> bool:
    """All three columns are there, with types that offsets may have."""
    if len(columns) != 3 or not all(name in schema.names for name in columns):
        return False
    topic, *numbers = (schema.field(name).type for name in columns)
    return bool(pa.types.is_string(topic) and all(pa.types.is_integer(number) for number in numbers))
