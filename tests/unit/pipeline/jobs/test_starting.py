"""A query whose Python came up too late for Spark is started again; no other one is."""

import pytest

from ottla.pipeline.jobs.starting import LATE, STARTS_MAX, until_it_starts


class Query:
    """Ends with these errors, one a start, and then well."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.starts = 0
        self.told: list[str] = []

    def run(self) -> None:
        self.starts += 1
        if self._errors:
            raise self._errors.pop(0)


def late() -> Exception:
    return RuntimeError(f"[STREAM_FAILED] Query [id = 1] terminated with exception: {LATE}. SQLSTATE: XXKST")


def test_it_is_started_until_its_python_is_there_in_time() -> None:
    query = Query(late(), late())
    until_it_starts(query.run, query.told.append)
    assert (query.starts, len(query.told)) == (3, 2)


def test_a_machine_that_stays_too_busy_ends_it() -> None:
    query = Query(*(late() for _ in range(STARTS_MAX)))
    with pytest.raises(RuntimeError, match=LATE):
        until_it_starts(query.run, query.told.append)
    assert query.starts == STARTS_MAX


def test_what_fails_otherwise_is_not_tried_again() -> None:
    query = Query(RuntimeError("no space"))
    with pytest.raises(RuntimeError, match="no space"):
        until_it_starts(query.run, query.told.append)
    assert (query.starts, query.told) == (1, [])
