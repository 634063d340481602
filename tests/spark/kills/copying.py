"""copying.py MASTER DIRECTORY BOOTSTRAP FROM TO: a stream from one topic to another, exactly once, until SIGTERM."""

import signal
import sys
from pathlib import Path
from threading import Event

from ottla.pipeline import register
from tests.spark.session import start


def main() -> None:
    master, directory, bootstrap, from_topic, to_topic = sys.argv[1:]
    spark = start(Path(directory), master)
    register(spark)
    reader = (
        spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", from_topic)
    )
    frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20000").load()
    writer = frame.select("key", "value", "partition").writeStream.format("ottla").option("topic", to_topic)
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.start()
    stop = Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    while not stop.is_set() and not query.awaitTermination(1):
        pass
    query.stop()


if __name__ == "__main__":
    main()
