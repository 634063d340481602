"""What the source makes of decoded values."""

import pyarrow as pa

from ottla.pipeline.source.columns import layout_of
from ottla.pipeline.source.formats import decoder_of
from ottla.pipeline.source.options import parse_options

JSON = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "value.format": "json", "value.schema": "a int"}


def rows(*values: bytes | None, **more: str) -> list[dict[str, object]]:
    """Of the columns that come of the values, where these are offsets 0, 1, ..."""
    options = parse_options({**JSON, **{name.replace("__", "."): text for name, text in more.items()}}, streaming=True)
    assert options.format is not None
    decoder = decoder_of(options.format)
    layout, schema = layout_of(options, decoder)
    count = len(values)
    arrays = [
        pa.array(values, pa.binary()) if name == "value" else pa.nulls(count, schema.field(name).type)
        for name in layout.fetched
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(layout.fetched))
    wanted = [name for name in layout.columns if name in ("a", "_corrupt", "value")]
    found: list[dict[str, object]] = layout.laid_out(batch, decoder, schema).select(wanted).to_pylist()
    return found


def test_bytes_of_values_that_do_not_parse_may_be_kept() -> None:
    good, bad, gone = rows(b'{"a": 1}', b"no JSON", None, value__raw="corrupt")
    assert good == {"a": 1, "_corrupt": None, "value": None}
    assert (bad["a"], bad["value"]) == (None, b"no JSON")
    assert bad["_corrupt"]
    assert gone == {"a": None, "_corrupt": None, "value": None}


def test_otherwise_bytes_are_not_there() -> None:
    assert [set(row) for row in rows(b'{"a": 1}')] == [{"a", "_corrupt"}]
