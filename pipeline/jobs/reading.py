"""The records of a job as a DataFrame: through our source, or through Spark's own Kafka connector with the same options."""

from typing import TYPE_CHECKING

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.words import InputWords, StreamWords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {"ottla": "ottla", "jvm": "kafka"}
OWN_OPTIONS = ("columns", "maxBytesPerTrigger", "endingOffsets", "endingTimestamp")
"""That a stream of the JVM's connector does not know."""


def batch(spark: "SparkSession", words: InputWords, **more: str) -> "DataFrame":
    """All records from ``words.start`` to ``words.until``."""
    options = words.read_options(streaming=False) | more
    return _registered(spark).read.format(FORMATS[words.source]).options(**options).load()


def stream(spark: "SparkSession", words: InputWords, stream: StreamWords, **more: str) -> "DataFrame":
    """Raises CommandError for what the source cannot."""
    options = words.read_options(streaming=True) | stream.limit_options() | more
    if words.source == "jvm":
        options = for_jvm(options)
    return _registered(spark).readStream.format(FORMATS[words.source]).options(**options).load()


def for_jvm(options: dict[str, str]) -> dict[str, str]:
    """The same, where the JVM's connector has them. Raises CommandError."""
    for name in OWN_OPTIONS:
        if name in options:
            raise CommandError(f"{name} is an option of our source: it cannot be given with --source jvm")
    return options


def _registered(spark: "SparkSession") -> "SparkSession":
    """Whatever the source: what is written goes through our sinks."""
    from ottla.pipeline import register

    register(spark)
    return spark
