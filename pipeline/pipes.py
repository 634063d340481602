"""The pipe between a task's Python worker and the JVM, which hangs up first where it has enough."""

import os
from collections.abc import Iterator

import pyarrow as pa


def until_closed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a worker sends. A task that ends before its worker (LIMIT, a task or query that is cancelled) closes the pipe, and the worker's
    next batch breaks on it. Spark's worker would now tell the JVM so, fail at that too, print a traceback and end: it ends here."""
    try:
        yield from batches
    except GeneratorExit as closing:
        if isinstance(closing.__context__, BrokenPipeError | ConnectionResetError):
            os._exit(0)
        raise
