"""copying.py MASTER DIRECTORY BOOTSTRAP FROM TO TABLE: two streams from one topic, to another and to a table, exactly once, until SIGTERM."""

import signal
import sys
from pathlib import Path
from threading import Event

from ottla.pipeline import register
from ottla.pipeline.jobs.starting import until_it_starts
from ottla.pipeline.unbegun import clear_unbegun
from tests.spark.session import SHORT_LIVED, start


def main() -> None:
    master, directory, bootstrap, from_topic, to_topic, table = sys.argv[1:]
    spark = start(Path(directory), master, {"spark.executor.extraJavaOptions": SHORT_LIVED})
    register(spark)
    reader = (
        spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", from_topic)
    )
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20000")
    frame = reader.option("minPartitions", "4").load()  # several tasks, also of small batches
    copy = frame.select("key", "value", "partition").writeStream.format("ottla").option("topic", to_topic)
    copy = copy.option("kafka.bootstrap.servers", bootstrap).option(
        "checkpointLocation", f"{directory}/checkpoint/copy"
    )
    land = frame.writeStream.format("ottla-delta").option("path", table)
    land = land.option("checkpointLocation", f"{directory}/checkpoint/table")
    stop = Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())

    def follow() -> None:
        for name in ("copy", "table"):
            clear_unbegun(spark, f"{directory}/checkpoint/{name}")
        queries = [copy.start(), land.start()]
        while not stop.wait(0.5) and all(query.isActive for query in queries):
            pass  # when one fails the other goes with it: who looks after jobs starts both again
        for query in queries:
            query.stop()
        for error in filter(None, (query.exception() for query in queries)):
            raise error

    until_it_starts(follow, print)  # as jobs do


if __name__ == "__main__":
    main()
