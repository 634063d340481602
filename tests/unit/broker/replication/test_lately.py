"""Of whom something was so a moment ago."""

from ottla.broker.replication.decisions.lately import NOBODY, Lately


def test_it_is_so_for_a_while_and_then_not_any_more() -> None:
    lately = Lately(100)
    lately.note(1, 1_000)
    lately.note(2, 1_050)
    assert lately.at(1_099) == {1, 2}
    assert lately.at(1_100) == {2}
    assert lately.at(1_150) == NOBODY


def test_what_is_noted_again_lasts_from_then_on() -> None:
    lately = Lately(100)
    lately.note(1, 1_000)
    lately.note(1, 1_090)
    assert lately.at(1_150) == {1}


def test_what_is_forgotten_is_not_so_any_more() -> None:
    lately = Lately(100)
    lately.note(1, 1_000)
    lately.forget(1)
    lately.forget(2)
    assert lately.at(1_001) == NOBODY
