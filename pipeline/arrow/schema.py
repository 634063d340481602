"""The table that a topic is: the columns of Spark's own Kafka connector, in its order and with its types."""

from collections.abc import Sequence

import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}

COLUMNS = tuple(_TYPES)
COLUMNS_WITHOUT_HEADERS = COLUMNS[:-1]


def schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns, in this order. Raises ValueError for a name that is no column, or comes twice."""
    unknown = [name for name in columns if name not in _TYPES]
    if unknown or len(set(columns)) < len(columns):
        raise ValueError(f"columns {', '.join(columns)}: each of {', '.join(COLUMNS)} may come once, and nothing else")
    return pa.schema([(name, _TYPES[name]) for name in columns])
