"""The Spark session of a job: settings that the measurements found (docs/pipeline.md), and Spark's own chatter in a file."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.pipeline.jobs.words import SessionWords

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    # Python workers talk to the JVM over Unix sockets: TCP stalls cost 20 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.session.timeZone": "UTC",
    # Without it a source that takes filters makes the query fail.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
LOCAL_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
PYTHON_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""They print what is raised as well, as JSON with a stack of Java's."""
LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def is_submitted() -> bool:
    """Whether spark-submit started this process: the master and the JVM are there already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(master: str) -> bool:
    """On this machine, executors among it."""
    return master.startswith("local")


def settings(words: SessionWords, cores: int) -> dict[str, str]:
    """What the session is made with, unless spark-submit or the person says otherwise."""
    master = words.master or "local[*]"
    chosen = dict(SETTINGS)
    if not is_submitted():
        chosen["spark.master"] = master
        if is_local(master):
            chosen |= LOCAL_SETTINGS | {"spark.sql.shuffle.partitions": str(cores)}
    return chosen | dict(words.confs)


class Session:
    """Started when it is made; Spark's log is thrown away at a good end, unless the person named a file for it."""

    def __init__(self, job: str, words: SessionWords) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-spark-", ignore_cleanup_errors=True)
        self.log = Path(words.spark_log or Path(self._directory.name, "spark.log")) if not is_submitted() else None
        self._is_kept = words.spark_log is not None
        try:
            self.spark = self._start(job, words)
        except BaseException:
            self._directory.cleanup()
            raise

    def _start(self, job: str, words: SessionWords) -> "SparkSession":
        from pyspark import SparkConf
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession

        for name in PYTHON_LOGGERS:
            PySparkLogger.getLogger(name).disabled = True
        if self.log is None:
            builder = SparkSession.builder.appName(f"ottla {job}")
            known = dict(SparkConf().getAll())
            for name, value in settings(words, os.cpu_count() or 2).items():
                if name not in known or name in words.confs:
                    builder = builder.config(name, value)
            return builder.getOrCreate()
        return self._launch(f"ottla {job}", settings(words, os.cpu_count() or 2), self.log)

    def _launch(self, name: str, chosen: Mapping[str, str], log: Path) -> "SparkSession":
        """The JVM writes to the log what it would write to the person's terminal."""
        from pyspark import SparkConf, SparkContext, java_gateway
        from pyspark.sql import SparkSession

        start: Any = java_gateway.launch_gateway  # untyped
        conf = SparkConf().setAppName(name)
        for key, value in self._own(chosen).items():
            conf.set(key, value)
        if is_local(chosen["spark.master"]):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        with log.open("ab") as file:
            gateway = start(conf, {"stdout": file, "stderr": file})
        context = SparkContext(gateway=gateway, conf=conf)
        if not is_local(chosen["spark.master"]):
            context.addPyFile(str(_zipped(Path(self._directory.name))))
        return SparkSession(context)

    def _own(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """With files of this session's own directory. Its name is short: sockets live there."""
        directory = Path(self._directory.name)
        logging = directory / "log4j2.properties"
        logging.write_text(LOGGING)
        java = f"-Dlog4j2.configurationFile={logging} {chosen.get('spark.driver.extraJavaOptions', '')}".strip()
        places = {"spark.sql.warehouse.dir": str(directory / "warehouse")}
        if is_local(chosen["spark.master"]):
            places["spark.python.unix.domain.socket.dir"] = str(directory)
        return {**places, **chosen, "spark.driver.extraJavaOptions": java}

    def stop(self, *, is_good: bool) -> str | None:
        """Returns where Spark's log is, if it stays."""
        try:
            self.spark.stop()
        finally:
            kept = self._keep() if self.log is not None and not is_good else None
            self._directory.cleanup()
        return str(self.log) if self._is_kept and not is_good else kept

    def _keep(self) -> str | None:
        if self._is_kept or self.log is None or not self.log.exists():
            return None
        handle, name = tempfile.mkstemp(prefix="ottla-spark-", suffix=".log")
        os.close(handle)
        return str(self.log.replace(name))


def _zipped(directory: Path) -> Path:
    from ottla.pipeline.jobs.packaging import write_zip

    path = directory / "ottla.zip"
    write_zip(path)
    return path
