"""The session that all tests here share."""

import sys

from pyspark.sql import SparkSession


def test_workers_of_the_session_run_this_interpreter(spark: SparkSession) -> None:
    def executable(_number: int) -> str:
        return sys.executable

    assert spark.sparkContext.parallelize([1, 2], 2).map(executable).distinct().collect() == [sys.executable]
