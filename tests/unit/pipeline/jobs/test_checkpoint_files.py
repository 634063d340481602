"""How a checkpoint's files are written, by where they are."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.jobs.checkpoint_files import MANAGER, WITHOUT_FORKS, is_on_disk, spare_forks


@pytest.mark.parametrize(
    ("place", "default", "on_disk"),
    [
        ("/lake/c", "file:///", True),
        ("lake/c", "", True),
        ("file:/lake/c", "hdfs://name", True),
        ("/lake/c", "hdfs://name", False),
        ("s3a://lake/c", "file:///", False),
    ],
)
def test_a_path_is_on_disk_unless_it_or_the_default_says_otherwise(place: str, default: str, on_disk: bool) -> None:
    assert is_on_disk(place, default) is on_disk


class Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("/lake/c", {}, {MANAGER: WITHOUT_FORKS}),
        ("/lake/c", {MANAGER: "theirs"}, {MANAGER: "theirs"}),
        ("s3a://lake/c", {}, {}),
    ],
)
def test_files_on_disk_are_written_without_forks_unless_a_person_chose(
    place: str, before: dict[str, str], after: dict[str, str]
) -> None:
    hadoop = SimpleNamespace(get=lambda _name: "file:///")
    context = SimpleNamespace(_jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop))
    spark: Any = SimpleNamespace(sparkContext=context, conf=Conf(before))
    spare_forks(spark, place)
    assert spark.conf == after
