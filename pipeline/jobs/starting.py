"""Spark gives the Python process of a streaming source ten seconds to come up, and no setting changes that."""

from collections.abc import Callable

STARTS_MAX = 5
LATE = "Python worker failed to connect back"
"""What Spark says then. It is said before the query has planned anything."""


def until_it_starts(run: Callable[[], None], say: Callable[[str], None]) -> None:
    """Runs a query, again where its Python was late. Raises what made it end."""
    for _ in range(STARTS_MAX - 1):
        try:
            return run()
        except Exception as error:
            if LATE not in str(error):
                raise
            say("the machine is busy: Python was not up within Spark's ten seconds; once more")
    return run()
