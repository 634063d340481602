"""Rows by the values of the columns that a table is partitioned by, and those values as folders have them."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

Values = tuple[str | None, ...]
NULL = "__HIVE_DEFAULT_PARTITION__"


def folder(columns: tuple[str, ...], values: Values) -> str:
    """As Hive named them, and as Spark reads them back."""
    return "/".join(
        f"{quote(name, safe='')}={NULL if value is None else quote(value, safe=' ,+@')}"
        for name, value in zip(columns, values, strict=True)
    )


def split(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Each partition's rows in their order, without the columns that name it."""
    if not columns:
        yield (), batch
        return
    found = [batch[name].dictionary_encode(null_encoding="encode") for name in columns]
    codes = np.zeros(batch.num_rows, np.int64)
    for column in found:
        codes = codes * max(len(column.dictionary), 1) + column.indices.to_numpy(zero_copy_only=False)
    rest = batch.drop_columns(list(columns))
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        values = tuple(_told(column[int(rows[0])]) for column in found)
        yield values, rest if len(rows) == batch.num_rows else rest.take(pa.array(rows))


def _told(value: pa.DictionaryScalar) -> str | None:
    try:
        return text(value.as_py())
    except OverflowError:  # Python has days of the years 1 to 9999 only
        day: str = value.value.cast(pa.string()).as_py()
        return day if day.startswith("-") else f"+{day}"  # as Spark writes them
    except UnicodeDecodeError:  # Spark's cast of bytes to a string looks at none of them
        octets: bytes = value.value.cast(pa.binary()).as_py()
        return octets.decode("utf-8", "replace")


def text(value: Any) -> str | None:
    match value:
        case None | "":
            return None  # Delta and Hive cannot tell the empty text from null
        case bool():
            return str(value).lower()
        case _:
            return str(value)
