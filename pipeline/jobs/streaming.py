"""A query at work: what it does is shown, written down and committed as a group's offsets; signals end it after the batch at work."""

import json
import queue
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import click

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.batches import Batch, Totals, batch_of, ranges
from ottla.pipeline.jobs.causes import cause
from ottla.pipeline.jobs.checkpoint import Checkpoint
from ottla.pipeline.jobs.checkpoint_files import spare_forks
from ottla.pipeline.jobs.group_commits import Commit, GroupCommits, WireCommit
from ottla.pipeline.jobs.starting import until_it_starts
from ottla.pipeline.jobs.stopping import Stopping
from ottla.pipeline.jobs.watching import View, Work, Written, view_of
from ottla.pipeline.jobs.words import InputWords, SessionWords, StreamWords
from ottla.pipeline.unbegun import clear_unbegun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S = 0.1
LOSES_DATA = "failOnDataLoss"


class QueryOptions(Protocol):
    """What a streaming job's options have."""

    @property
    def session(self) -> SessionWords: ...

    @property
    def input(self) -> InputWords: ...

    @property
    def stream(self) -> StreamWords: ...


class Beside(Protocol):
    """What a job does beside its query."""

    def batch(self, batch: Batch, say: Callable[[str], None]) -> None:
        """One is done."""

    def end(self, say: Callable[[str], None]) -> None:
        """The query ended well, or was told to stop."""


def run_query(
    spark: "SparkSession",
    job: str,
    writer: "DataStreamWriter",
    options: QueryOptions,
    checkpoint: str,
    *,
    target: str,
    beside: Beside | None = None,
) -> int:
    """Until all is read, a signal comes or a batch fails. ``target`` is what a person knows the output by. Raises CommandError."""
    require_same_topics(Checkpoint(checkpoint), options.input)
    spare_forks(spark, checkpoint)
    name = query_name(job, options.input, options.stream)
    group = options.stream.group_of(name)
    view = view_of(f"{job}: {options.input.topic_label} to {target}")
    commits = GroupCommits(group, _commit(group, options.input), view.say) if group is not None else None
    running = Running(view, Written(options.session.progress), commits, beside)

    def run(stopping: Stopping) -> None:
        for file in clear_unbegun(spark, checkpoint):
            view.say(f"removed {checkpoint}/offsets/{file}: a start before ended in its very first batch")
        query = _started(writer, name, options.stream, checkpoint)
        running.follow(spark, query, stopping, options.stream.stop_timeout_s)

    try:
        with Stopping() as stopping:
            until_it_starts(lambda: run(stopping), view.say)
            if beside is not None:
                beside.end(view.say)
    except CommandError:
        raise
    except Exception as error:
        raise CommandError(failure(Checkpoint(checkpoint), cause(error))) from error
    finally:
        running.close(Checkpoint(checkpoint))
    report(job, name, running.totals, options, was_stopped=stopping.is_asked)
    return 0


def query_name(job: str, words: InputWords, stream: StreamWords) -> str:
    return stream.name or f"{job}-{words.topic_label}"


def _commit(group: str, words: InputWords) -> Commit:
    try:
        return WireCommit(group, words.read_options(streaming=True))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _started(writer: "DataStreamWriter", name: str, stream: StreamWords, checkpoint: str) -> "StreamingQuery":
    writer = writer.queryName(name).option("checkpointLocation", checkpoint)
    if stream.interval_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{stream.interval_ms} milliseconds").start()


def require_same_topics(checkpoint: Checkpoint, words: InputWords) -> None:
    """A checkpoint that knows topics which are not asked for is another job's. Raises CommandError."""
    planned = max(checkpoint.planned_batches(), default=None)
    wanted = set(words.topics) | set(words.assign or ())
    if planned is None or not wanted or words.options.get(LOSES_DATA) == "false":
        return
    known = {topic for topic, _ in checkpoint.planned(planned).offsets}
    if known - wanted:
        raise CommandError(
            f"the checkpoint {checkpoint.directory} is of {', '.join(sorted(known))}, and {', '.join(sorted(known - wanted))} is not asked for:"
            f" name another --checkpoint, or the same topics (--option {LOSES_DATA}=false: leave them out from now on)"
        )


def failure(checkpoint: Checkpoint, why: str) -> str:
    """With what the batch reads, as far as it was planned."""
    try:
        failed = checkpoint.unfinished()
        if failed is None:
            done = checkpoint.last_done()
            return f"failed {f'after batch {done.batch}' if done else 'before the first batch'}: {why}"
        before = (
            checkpoint.planned(failed.batch - 1).offsets if failed.batch - 1 in checkpoint.planned_batches() else {}
        )
    except (CommandError, OSError):
        return why
    return f"batch {failed.batch} failed: {why.rstrip('.')}. It reads {ranges(before, failed.offsets) or 'nothing'}; started again, the job reads the same"


def report(job: str, name: str, totals: Totals, options: QueryOptions, *, was_stopped: bool) -> None:
    if options.session.output == "json":
        click.echo(json.dumps({"job": job, "query": name, "stopped": was_stopped, **totals.summary()}))
        return
    told = f"{totals.rows:,} rows in {totals.batches} batch{'es' * (totals.batches != 1)}"
    if totals.seconds and totals.rows:
        told += f", {totals.rows / totals.seconds:,.0f} rows/s"
    if totals.late:
        told += f", {totals.late:,} late"
    if totals.corrupt:
        told += f", {totals.corrupt:,} unusable"
    click.echo(f"{'stopped' if was_stopped else 'done'}: {told if totals.batches else 'nothing new to read'}")


class Running:
    """What is known of the query while it runs. One thread shows it all; Spark's events wait in a queue for that."""

    def __init__(
        self, view: View, written: Written, commits: GroupCommits | None, beside: Beside | None = None
    ) -> None:
        self.totals = Totals()
        self._view, self._written, self._commits, self._beside = view, written, commits, beside
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._run_id = ""

    def follow(self, spark: "SparkSession", query: "StreamingQuery", stopping: Stopping, stop_timeout_s: float) -> None:
        """Raises what made the query end."""
        listener = _listener(self._events, str(query.runId))
        spark.streams.addListener(listener)
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                self._take()
                if self._view.is_live:
                    self._view.tick(_work(spark, query))
                if stopping.is_asked:
                    self._stop(query, stopping, stop_timeout_s)
        finally:
            spark.streams.removeListener(listener)
            self._take()
            self._take_missed(query)

    def _stop(self, query: "StreamingQuery", stopping: Stopping, timeout_s: float) -> None:
        self._view.say("stopping after the batch at work; once more to stop at once")
        until, batches = time.monotonic() + timeout_s, self.totals.batches
        while query.isActive and query.status["isTriggerActive"] and self.totals.batches == batches:
            if stopping.is_urgent or time.monotonic() > until:
                self._view.say("the batch at work is left undone: the next start does it again")
                break
            time.sleep(POLL_S / 2)
            self._take()
        query.stop()

    def _take(self) -> None:
        while not self._events.empty():
            self._add(batch_of(json.loads(self._events.get())))

    def _take_missed(self, query: "StreamingQuery") -> None:
        """The last event may come too late for the listener."""
        for progress in query.recentProgress:
            self._add(batch_of(json.loads(progress.json if hasattr(progress, "json") else json.dumps(progress))))

    def _add(self, batch: Batch) -> None:
        """Each once. A progress without a batch is told while nothing comes."""
        last = self.totals.last
        if (last is not None and batch.number <= last.number) or not batch.durations_ms.get("addBatch"):
            return
        self.totals.add(batch)
        self._view.batch(batch, self.totals)
        self._written.write(batch)
        if self._commits is not None:
            self._commits.tell(batch.end)
        if self._beside is not None:
            self._beside.batch(batch, self._view.say)

    def close(self, checkpoint: Checkpoint) -> None:
        """The last offsets are the checkpoint's: it knows of a batch whose progress nobody heard."""
        self._view.close()
        self._written.close()
        if self._commits is not None:
            try:
                done = checkpoint.last_done()
            except (CommandError, OSError):
                done = None
            self._commits.tell(done.offsets if done is not None else {})
            self._commits.close()


def _work(spark: "SparkSession", query: "StreamingQuery") -> Work:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    known = [each for each in stages if each is not None]
    done, total = sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
    return Work(bool(query.status["isTriggerActive"]), done, total)


def _listener(events: "queue.SimpleQueue[str]", run_id: str) -> Any:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):
        """Hands over what the query tells."""

        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            """It is known."""

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            if str(event.progress.runId) == run_id:
                events.put(event.progress.json)

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
            """The query says so itself."""

    return Listener()
