"""How Spark writes the files of a query's checkpoint."""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
WITHOUT_FORKS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def spare_forks(spark: "SparkSession", checkpoint: str) -> None:
    """Spark writes them through Hadoop's FileContext, and that, where Hadoop's native library is not (PyPI has none), starts a `chmod`
    for each file: 100 ms of a batch. Through Hadoop's FileSystem they are written and renamed likewise, without. Only on disks: other
    file systems promise more of one way than of the other. What the person set stands."""
    context: Any = spark.sparkContext._jsc
    if is_on_disk(checkpoint, context.hadoopConfiguration().get("fs.defaultFS") or "") and not spark.conf.get(
        MANAGER, None
    ):
        spark.conf.set(MANAGER, WITHOUT_FORKS)


def is_on_disk(place: str, default: str) -> bool:
    """Here, or mounted here. ``default``: which file system paths without a scheme are of."""
    return (urlsplit(place).scheme or urlsplit(default).scheme or "file") == "file"
