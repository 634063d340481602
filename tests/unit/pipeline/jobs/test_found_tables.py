"""A table as jobs find it."""

from typing import Any

import pytest

from ottla.pipeline.jobs import found_tables


class Growing:
    """A format's module, of a table to which somebody commits a file with each look."""

    def __init__(self) -> None:
        self._files: list[str] = []

    def committed_files(self, _path: str) -> list[str]:
        self._files.append(f"part-{len(self._files)}")
        return list(self._files)

    def read(self, _spark: Any, path: str) -> Any:
        return _Rows(self.committed_files(path))


def test_the_rows_of_a_table_are_those_of_the_files_that_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay writes the files down, and reads them when it is started again: what came between two looks would be sent then, or not."""
    monkeypatch.setattr(found_tables, "_OURS", {"delta": Growing()})
    monkeypatch.setattr(found_tables, "read_files", lambda _spark, _path, files, _schema: _Rows(files))
    spark: Any = None
    rows, files = found_tables.open_table(spark, "/lake/t", "delta")
    assert rows.files == files


class _Rows:
    """As far as a DataFrame is asked here."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    @property
    def schema(self) -> Any:
        return self

    def jsonValue(self) -> dict[str, Any]:
        return {}
