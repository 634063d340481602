"""What there is to send, as the table's rows tell it."""

import pytest

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.replay_plan import Extent
from ottla.pipeline.jobs.replay_rows import extent_of


def test_rows_with_a_place_have_an_extent() -> None:
    assert extent_of("t", 1, 5, 9, 5, 5) == Extent("t", 1, 5, 9, 5)


@pytest.mark.parametrize(
    "row", [("t", None, 5, 9, 3, 3), ("t", 0, None, None, 2, 0), ("t", 0, 5, 9, 4, 3), (None, 0, 5, 9, 3, 3)]
)
def test_rows_without_one_are_in_no_chunk_and_the_replay_is_refused(row: tuple[str, int, int, int, int, int]) -> None:
    """Chunks are offsets of partitions: such rows would be counted, and never sent."""
    with pytest.raises(CommandError, match=r"rows without a topic, partition or offset: .*--where .*--order-by"):
        extent_of(*row)
