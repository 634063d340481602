"""Small files of a job on a disk: whole, or as before, whatever fails and whenever the power goes."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.pipeline.jobs.files import Local


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was synced and renamed, in order."""
    told: list[tuple[str, str]] = []
    replace = os.replace
    monkeypatch.setattr(os, "fsync", lambda number: told.append(("sync", os.readlink(f"/proc/self/fd/{number}"))))

    def replaced(from_path: Path, to_path: Path) -> None:
        told.append(("rename", str(to_path)))
        replace(from_path, to_path)

    monkeypatch.setattr(os, "replace", replaced)
    return told


def test_what_is_written_is_on_the_disk_with_its_name_and_its_folders(
    tmp_path: Path, done: list[tuple[str, str]]
) -> None:
    """A replay sends the first chunk of a plan after that: whoever forgets the plan sends all of it again under another name."""
    place = tmp_path / "lake" / "replay"
    Local(place).write("replay.json", "{}")
    assert done[:2] == [("sync", str(place / ".replay.json.tmp")), ("rename", str(place / "replay.json"))]
    assert done[2:] == [("sync", str(each)) for each in (place, place.parent, tmp_path)]
    del done[:]
    Local(place).write("replay.json", "{ }")
    assert done[2:] == [("sync", str(place))], "what was there is there"


def failing(nth: int, call: Callable[..., None]) -> Callable[..., None]:
    left = [nth]

    def fails(*arguments: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        call(*arguments)

    return fails


@pytest.mark.parametrize(("name", "nth"), [("fsync", 1), ("replace", 1), ("fsync", 2)])
def test_a_write_that_fails_leaves_what_was_or_what_is_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    files = Local(tmp_path)
    files.write("replay.done", "1\n")
    with monkeypatch.context() as patched:
        patched.setattr(os, name, failing(nth, getattr(os, name)))
        with pytest.raises(OSError, match="No space left"):
            files.write("replay.done", "2\n")
    assert files.text("replay.done") == ("2\n" if nth == 2 else "1\n")
    files.write("replay.done", "3\n")
    assert files.text("replay.done") == "3\n"


def test_a_disk_that_is_full_in_the_middle_of_a_text_leaves_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Local(tmp_path)
    files.write("replay.json", '{"chunks": 1}')
    write = Path.write_text

    def half(path: Path, text: str) -> int:
        write(path, text[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", half)
        with pytest.raises(OSError, match="No space left"):
            files.write("replay.json", '{"chunks": 2}')
    assert files.text("replay.json") == '{"chunks": 1}'
    files.write("replay.json", '{"chunks": 3}')
    assert files.text("replay.json") == '{"chunks": 3}'


def test_a_folder_that_cannot_be_made_is_told_and_made_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Local(tmp_path / "new")
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", failing(1, os.mkdir))
        with pytest.raises(OSError, match="No space left"):
            files.write("replay.json", "{}")
    files.write("replay.json", "{}")
    assert files.text("replay.json") == "{}"
