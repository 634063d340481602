"""What Spark says about the task that runs."""

from pyspark import TaskContext

from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.errors import SinkError

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"


def of_stream() -> Attempt:
    """Spark's Python writers are not told the batch, but its tasks know it."""
    context = _context()
    query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
    if query is None or batch is None:
        raise SinkError(f"Spark names no streaming query and batch to this task ({QUERY}, {BATCH})")
    return Attempt(query, int(batch), context.partitionId(), context.taskAttemptId())


def of_write(query: str, batch: int) -> Attempt:
    context = _context()
    return Attempt(query, batch, context.partitionId(), context.taskAttemptId())


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("A sink's rows are written in Spark's tasks")
    return context
