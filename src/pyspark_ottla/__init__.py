"""Spark looks for data sources in installed packages whose names begin with ``pyspark_``: this one shows it ``format("ottla")``."""

from ottla.pipeline.source.datasource import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
