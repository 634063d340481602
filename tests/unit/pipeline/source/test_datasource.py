"""What Spark's planner calls, as it calls it, without a JVM."""

import inspect
import os
from typing import Any

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, LongType, StringType, StructType, TimestampType

import pyspark_ottla
from ottla.pipeline.source.columns import layout_of
from ottla.pipeline.source.datasource import OttlaSource, Ranges
from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.formats import decoder_of
from ottla.pipeline.source.limits_of_spark import is_unlimited
from ottla.pipeline.source.options import parse_options
from ottla.pipeline.wire.reading import Range

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
JSON = {"value.format": "json", "value.schema": "vin string, seq bigint"}


def source(**texts: str) -> OttlaSource:
    """Spark gives names in small letters."""
    given = LEAST | {name.replace("__", "."): text for name, text in texts.items()}
    return OttlaSource({name.lower(): text for name, text in given.items()})


def names(schema: StructType) -> list[str]:
    return [field.name for field in schema]


def test_the_schema_is_that_of_sparks_connector() -> None:
    schema = source(includeHeaders="true").schema()

    assert names(schema) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert [type(schema[name].dataType) for name in ("value", "offset", "timestamp")] == [
        BinaryType,
        LongType,
        TimestampType,
    ]
    assert names(source().schema()) == names(schema)[:-1]


def test_decoded_columns_stand_in_the_place_of_the_value() -> None:
    schema = source(value__format="json", value__schema="vin string, seq bigint").schema()

    assert names(schema) == [
        "key",
        "vin",
        "seq",
        "_corrupt",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    assert isinstance(schema["vin"].dataType, StringType)


def test_columns_are_chosen_in_their_order_and_in_any_case() -> None:
    more = {"value__format": "json", "value__schema": "vin string, seq bigint"}
    assert names(source(columns="OFFSET, seq,value", **more).schema()) == ["offset", "seq", "value"]
    with pytest.raises(OptionError, match=r"columns=vins: there is key, .*vin, seq"):
        source(columns="vins", **more).schema()


def test_a_column_that_kafka_has_needs_a_prefix() -> None:
    more = {"value__format": "json", "value__schema": "Offset bigint"}
    with pytest.raises(OptionError, match=r"has Offset, which is a column of Kafka's: set option value\.prefix"):
        source(**more).schema()
    assert "v_Offset" in names(source(value__prefix="v_", **more).schema())


def test_only_what_is_shown_is_fetched_and_decoded() -> None:
    options = parse_options(LEAST | JSON | {"columns": "offset,key"}, streaming=False)
    assert options.format is not None
    layout, _ = layout_of(options, decoder_of(options.format))

    assert (layout.fetched, layout.format) == (("key", "offset"), None)


def test_a_stream_reader_travels_to_executors_without_what_the_driver_holds() -> None:
    reader: Any = source().streamReader(source().schema())
    reader._driver  # noqa: B018 -- made when it is first needed
    again: Any = loads(dumps(reader))  # type: ignore[no-untyped-call]

    assert again._stream is None
    assert list(again.read(None)) == []  # a partition of nothing


def test_a_stream_reader_is_of_spark_4_0_to_4_3() -> None:
    reader: Any = source(maxOffsetsPerTrigger="7").streamReader(source().schema())

    assert issubclass(type(reader), SupportsTriggerAvailableNow)
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    parameters = inspect.signature(reader.latestOffset).parameters.values()
    assert [each.default for each in parameters] == [None, None]  # Spark 4.1 calls it without


def test_a_trigger_without_limits_takes_everything() -> None:
    limited = parse_options(LEAST | {"maxBytesPerTrigger": "1m"}, streaming=True)
    free = parse_options(LEAST, streaming=True)

    assert is_unlimited(limited, ReadAllAvailable())
    assert not is_unlimited(limited, ReadMaxBytes(1 << 20))
    assert not is_unlimited(free, ReadAllAvailable())
    assert not is_unlimited(limited, None)


def test_filters_are_taken_only_where_they_were_asked_for() -> None:
    """Spark fails a query whose reader takes filters, unless its conf allows it."""
    assert "pushFilters" not in vars(type(source().reader(source().schema())))
    assert "pushFilters" in vars(type(source(pushdown="true").reader(source().schema())))


def test_what_a_task_reads_can_be_read_in_spark_s_messages() -> None:
    assert repr(Ranges((Range("t", 3, 5, 9),))) == "Ranges(t-3 [5, 9))"


def test_spark_finds_the_format_by_its_name() -> None:
    assert pyspark_ottla.DefaultSource is OttlaSource
    assert OttlaSource.name() == "ottla"


def test_a_batch_has_exactly_the_types_that_were_said() -> None:
    options = parse_options(LEAST | {"columns": "offset,value"}, streaming=False)
    layout, schema = layout_of(options, None)
    assert layout.fetched == ("value", "offset")
    found = pa.RecordBatch.from_arrays([pa.array([b"a"], pa.binary()), pa.array([1], pa.int64())], ["value", "offset"])

    assert layout.laid_out(found, None, schema).schema.equals(
        pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    )


@pytest.mark.parametrize(("error", "codes"), [(EOFError, [0]), (BrokenPipeError, [0]), (ValueError, [])])
def test_a_source_whose_query_is_over_ends_without_a_word(
    error: type[Exception], codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark's process calls it: while the reason is on its way out."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    reader = source().streamReader(source().schema())

    def asked() -> None:
        try:
            raise error
        finally:
            reader.stop()

    with pytest.raises(error):
        asked()
    assert ended == codes
