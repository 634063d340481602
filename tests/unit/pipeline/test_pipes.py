"""A worker whose JVM closed the pipe ends, and says nothing."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from ottla.pipeline.pipes import until_closed

BATCH = pa.RecordBatch.from_pydict({"offset": [1]})


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


def sent(error: type[Exception], *batches: pa.RecordBatch) -> None:
    """As Spark's worker sends them: by a generator of its own, which it closes while the reason is on its way out."""
    checked = (batch for batch in until_closed(iter(batches)))
    try:
        for _ in checked:
            raise error
    finally:
        checked.close()


@pytest.mark.parametrize(
    ("error", "codes"), [(BrokenPipeError, [0]), (ConnectionResetError, [0]), (OSError, []), (ValueError, [])]
)
def test_it_ends_only_where_the_pipe_broke(error: type[Exception], codes: list[int], ended: list[int]) -> None:
    with pytest.raises(error):
        sent(error, BATCH, BATCH)

    assert ended == codes


def test_a_connection_that_a_broker_ends_is_an_error_like_others(ended: list[int]) -> None:
    def fetched() -> Iterator[pa.RecordBatch]:
        yield BATCH
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        list(until_closed(fetched()))

    assert ended == []


def test_all_batches_come(ended: list[int]) -> None:
    assert list(until_closed(iter([BATCH, BATCH]))) == [BATCH, BATCH]
    assert ended == []
