"""What a start that died in its first batch leaves, and what is another thing."""

import pytest

from ottla.pipeline.unbegun import unbegun

LEFT = ".0.7c0ad3f2-1b60-4a0e-8f43-5d0f6f1c0b7d.TID12.tmp"


@pytest.mark.parametrize("names", [[LEFT], [LEFT, LEFT.replace(".TID12", "")], []])
def test_what_never_became_a_batch_goes(names: list[str]) -> None:
    assert unbegun(names) == names


@pytest.mark.parametrize(
    "other", ["0", "17", ".0.crc", "0.tmp", ".metadata.7c0ad3f2.tmp", "notes", "..0.tmp", ".0.tmp", ".0..tmp.bak"]
)
def test_beside_anything_else_nothing_goes(other: str) -> None:
    assert unbegun([LEFT, other]) == []
