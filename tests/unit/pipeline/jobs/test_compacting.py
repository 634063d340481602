"""Files are put together every so many batches, and nothing fails for it."""

from typing import NamedTuple

from ottla.pipeline.jobs.batches import Batch, batch_of
from ottla.pipeline.jobs.compacting import Compacting


class Done(NamedTuple):
    files_before: int
    files_after: int


class Table:
    """Each batch made a file of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.said: list[str] = []
        self.failure: Exception | None = None

    def compact(self, path: str, target_bytes: int) -> Done:
        self.asked.append((path, target_bytes))
        if self.failure is not None:
            raise self.failure
        return Done(5, 1)


def batch(rows: int = 10) -> Batch:
    return batch_of({"name": "q", "timestamp": "", "batchId": 1, "batchDuration": 1, "numInputRows": rows})


def run(table: Table, every: int, *batches: Batch) -> None:
    compacting = Compacting("/t", 7, every, table.compact)
    for each in batches:
        compacting.batch(each, table.said.append)
    compacting.end(table.said.append)


def test_files_are_put_together_every_so_many_batches() -> None:
    table = Table()
    run(table, 3, *[batch()] * 3)
    assert (table.asked, table.said) == ([("/t", 7)], ["compacted: 5 files became 1"])


def test_what_came_since_is_put_together_at_the_end() -> None:
    table = Table()
    run(table, 3, *[batch()] * 2)
    assert table.asked == [("/t", 7)]


def test_one_file_is_left_as_it_is() -> None:
    table = Table()
    run(table, 3, batch(), batch(rows=0))
    assert table.asked == []


def test_nothing_is_put_together_where_nobody_wants_it() -> None:
    table = Table()
    run(table, 0, *[batch()] * 9)
    assert table.asked == []


def test_a_failure_is_said_and_no_more() -> None:
    table = Table()
    table.failure = OSError("no\nspace")
    run(table, 5, *[batch()] * 2)
    assert table.said == ["the table is not compacted: no space"]
