"""Rows with their values parsed: inside our source, or by Spark where its own connector reads."""

from typing import TYPE_CHECKING

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs import reading
from ottla.pipeline.jobs.values import CORRUPT, JSON, ValueWords
from ottla.pipeline.jobs.words import InputWords, StreamWords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

REASON = "the value is no JSON of this schema"
RAW = {"value.raw": "corrupt"}
"""Of values that do not parse the bytes come as well: dead letters have them."""


def parsed(
    spark: "SparkSession",
    words: InputWords,
    stream: StreamWords,
    value: ValueWords,
    *,
    is_raw_wanted: bool = True,
    **more: str,
) -> "DataFrame":
    """With a format: the value's columns, ``_corrupt`` (why it does not parse), and ``value`` where it does not. Raises CommandError."""
    if value.format is None:
        return reading.stream(spark, words, stream, **more)
    if words.source == "ottla":
        return reading.stream(spark, words, stream, **value.options(), **(RAW if is_raw_wanted else {}), **more)
    return by_spark(reading.stream(spark, words, stream), value)


def by_spark(rows: "DataFrame", value: ValueWords) -> "DataFrame":
    """What our source does, by Spark. It has no Avro and no protobuf without further jars."""
    from pyspark.sql import functions as F

    if value.format != JSON:
        raise CommandError(
            f"--value-format {value.format} with --source jvm needs jars of Spark's: read with our source"
        )
    schema = _with_marker(value.schema)
    made = F.from_json(F.col("value").cast("string"), schema, {"columnNameOfCorruptRecord": _MARKER})
    rows = rows.withColumn("_parsed", made)
    is_corrupt = F.col("value").isNotNull() & (F.col("_parsed").isNull() | F.col(f"_parsed.{_MARKER}").isNotNull())
    names = [each for each in schema.fieldNames() if each != _MARKER]
    own = [F.when(~is_corrupt, F.col("_parsed").getField(name)).alias(f"{value.prefix}{name}") for name in names]
    return rows.select(
        "key",
        *own,
        F.when(is_corrupt, F.lit(REASON)).alias(CORRUPT),
        F.when(is_corrupt, F.col("value")).alias("value"),
        *[each for each in rows.columns if each not in ("key", "value", "_parsed")],
    )


_MARKER = "_does_not_parse"


def _with_marker(text: str) -> "StructType":
    from pyspark.errors import ParseException
    from pyspark.sql.types import StringType, StructType

    try:
        schema = StructType.fromDDL(text)
    except ParseException as error:
        raise CommandError(f"--value-schema {text!r} is no list of columns and types: {error.getMessage()}") from error
    if not isinstance(schema, StructType):
        raise CommandError(f"--value-schema {text!r} is no list of columns and types")
    return schema.add(_MARKER, StringType())
