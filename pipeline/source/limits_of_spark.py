"""Limits of Spark 4.2 and later, where a trigger may say that there are none."""

from typing import Any

from ottla.pipeline.source.options import SourceOptions


def default_limit(options: SourceOptions) -> Any:
    """What Spark gives back with each question for the next offset. The source's own options decide all the same."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

    if options.trigger_offsets_max is not None:
        return ReadMaxRows(options.trigger_offsets_max)
    if options.trigger_bytes_max is not None:
        return ReadMaxBytes(options.trigger_bytes_max)
    return ReadAllAvailable()


def is_unlimited(options: SourceOptions, limit: Any) -> bool:
    """Whether a trigger (Once) asks for everything although the options have a limit."""
    has_limit = options.trigger_offsets_max is not None or options.trigger_bytes_max is not None
    return has_limit and type(limit).__name__ == "ReadAllAvailable"
