"""What a start that died in its first batch leaves, and what is another thing."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.unbegun import clear_unbegun, unbegun

LEFT = ".0.7c0ad3f2-1b60-4a0e-8f43-5d0f6f1c0b7d.TID12.tmp"


@pytest.mark.parametrize("names", [[LEFT], [LEFT, LEFT.replace(".TID12", "")], []])
def test_what_never_became_a_batch_goes(names: list[str]) -> None:
    assert unbegun(names) == names


@pytest.mark.parametrize(
    "other", ["0", "17", ".0.crc", "0.tmp", ".metadata.7c0ad3f2.tmp", "notes", "..0.tmp", ".0.tmp", ".0..tmp.bak"]
)
def test_beside_anything_else_nothing_goes(other: str) -> None:
    assert unbegun([LEFT, other]) == []


class Hadoop:
    """A file system with one folder, in which the removal of one file fails once."""

    def __init__(self, names: list[str], failing: str) -> None:
        self.names, self.failing = names, failing
        path = SimpleNamespace(getFileSystem=lambda _: self)
        paths = lambda _, name: path if name == "offsets" else name  # noqa: E731 - Hadoop's class, as far as it is used
        hadoop = SimpleNamespace(fs=SimpleNamespace(Path=paths))
        jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
        context = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))
        self.spark: Any = SimpleNamespace(sparkContext=context)

    def exists(self, _: object) -> bool:
        return True

    def listStatus(self, _: object) -> list[Any]:
        return [SimpleNamespace(getPath=lambda name=name: SimpleNamespace(getName=lambda: name)) for name in self.names]

    def delete(self, name: str, _: bool) -> None:
        if name == self.failing:
            self.failing = ""
            raise OSError("Permission denied")
        self.names.remove(name)


def test_where_a_removal_fails_the_next_start_removes_what_is_left() -> None:
    files = Hadoop([".0.a.tmp", ".0.b.tmp"], failing=".0.b.tmp")
    with pytest.raises(OSError, match="denied"):
        clear_unbegun(files.spark, "c")
    assert files.names == [".0.b.tmp"]
    assert clear_unbegun(files.spark, "c") == [".0.b.tmp"]
    assert files.names == []
