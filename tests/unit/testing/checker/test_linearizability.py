"""The quick way for registers and the slow way for anything agree; the slow one gives up honestly."""

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.checker.linearizability import Step, Verdict, check
from ottla.testing.checker.operations import FOREVER
from ottla.testing.checker.registers import Access, contradictions

State = str | None


def step(access: Access) -> Step[State]:
    apply: Callable[[State], Sequence[State]]
    if access.is_write:
        apply = lambda state: (access.value,)  # noqa: E731
    else:
        apply = lambda state: (state,) if state == access.value else ()  # noqa: E731
    return Step(access.begin, access.end, apply)


@st.composite
def histories(draw: st.DrawFn) -> list[Access]:
    """Writes of 0, 1, 2 ... and reads of any of them, at any times; some writes are never answered."""
    writes = draw(st.integers(0, 5))
    values: list[State] = [None, *map(str, range(writes))]
    found = []
    for number in range(writes + draw(st.integers(0, 6))):
        begin = draw(st.integers(0, 20))
        is_write = number < writes
        end = begin + draw(st.integers(0, 8))
        if is_write and draw(st.integers(0, 4)) == 0:
            end = FOREVER
        value = str(number) if is_write else draw(st.sampled_from(values))
        found.append(Access(is_write, value, begin, end, number + 1))
    return found


@given(histories())
def test_the_quick_way_and_the_slow_way_agree(history: list[Access]) -> None:
    result = check([step(each) for each in history], None)
    assert result.verdict is not Verdict.UNKNOWN
    assert (contradictions(history) == []) == (result.verdict is Verdict.LINEARIZABLE)


def test_too_much_under_way_at_once_is_not_judged() -> None:
    writes = [Access(True, str(number), 0, FOREVER, number) for number in range(40)]
    result = check([step(each) for each in [*writes, Access(False, "no", 10, 20, 40)]], None, limit=10_000)
    assert result.verdict is Verdict.UNKNOWN
    assert result.tried < 20_000


def test_twins_under_way_are_not_tried_in_every_order() -> None:
    writes = [Step[State](number, FOREVER, lambda state: ("a",), "write a") for number in range(60)]
    result = check([*writes, step(Access(False, "a", 100, 101, 60))], None)
    assert result.verdict is Verdict.LINEARIZABLE
    assert result.tried < 200


def test_the_step_that_nothing_explains_is_named() -> None:
    accesses = [Access(True, "a", 0, 1, 1), Access(False, "a", 2, 3, 2), Access(False, None, 4, 5, 3)]
    assert check([step(each) for each in accesses], None).at == 2
