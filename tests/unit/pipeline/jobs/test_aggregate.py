"""Names of columns that the query has for itself."""

from dataclasses import replace

import pytest

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.aggregate import AggregateOptions
from ottla.pipeline.jobs.aggregate_run import require_free
from ottla.pipeline.jobs.values import ValueWords
from ottla.pipeline.jobs.words import InputWords, SessionWords, StreamWords

OPTIONS = AggregateOptions(
    InputWords("a:9092", ("t",)), StreamWords(), SessionWords(), ValueWords("json"), "60000 milliseconds", "0", (), ()
)


def test_columns_with_names_of_their_own_are_free() -> None:
    require_free(["key", "time", "window", "timestamp"], OPTIONS)


@pytest.mark.parametrize("name", ["_time", "_Time", "_window", "_IS_LATE"])
def test_a_column_of_the_values_is_not_taken_for_one_of_the_querys(name: str) -> None:
    """Its measures would be those of another column, without a word."""
    with pytest.raises(CommandError, match=f"a column {name}, .* --value-prefix"):
        require_free(["key", name, "timestamp"], OPTIONS)


def test_the_time_of_the_windows_may_have_the_name_that_it_is_given() -> None:
    require_free(["key", "_time", "timestamp"], replace(OPTIONS, time_column="_time"))


def test_no_other_column_of_the_query_may() -> None:
    with pytest.raises(CommandError, match="a column _window"):
        require_free(["_window"], replace(OPTIONS, time_column="_window"))
