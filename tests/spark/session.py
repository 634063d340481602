"""The one Spark session of a test process: local, quiet, small."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

HOME = Path(pyspark.__file__).parent
CONNECTOR = Path(__file__).parents[1] / "peers" / "spark" / "connector"
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of a JVM that lives for a minute, and gains nothing from the second compiler."""

LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{5}
"""
"""A failed batch says enough through its exception; what Spark warns of in a session of seconds is noise."""


def connector_jars() -> str:
    """Spark's own Kafka connector as ``spark.jars`` wants it; empty when it is not installed."""
    return subprocess.run([CONNECTOR, "jars"], check=True, capture_output=True, text=True).stdout.strip()


def quiet_logging(directory: Path) -> str:
    """A JVM option."""
    file = directory / "log4j2.properties"
    file.write_text(LOGGING)
    return f"-Dlog4j2.configurationFile={file}"


def spark_home(directory: Path) -> Path:
    """Links to the installed Spark: the workers of local-cluster write into SPARK_HOME, whatever one says."""
    home = directory / "home"
    if not home.exists():
        home.mkdir()
        for entry in HOME.iterdir():
            (home / entry.name).symlink_to(entry)
    return home


def settings(directory: Path) -> dict[str, str]:
    """For a driver and executors on loopback that keep everything of theirs in ``directory``."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{quiet_logging(directory)} {SHORT_LIVED}",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(directory),
    }


def start(directory: Path, master: str = "local[2]", more: dict[str, str] | None = None) -> SparkSession:
    """Workers run this interpreter, and find what this process finds."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("ottla tests")
    jars = connector_jars()
    for name, text in (settings(directory) | ({"spark.jars": jars} if jars else {}) | (more or {})).items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
