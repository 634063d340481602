"""Regular expressions over topic names: RE2's, over the whole name, and cheap whatever a client sends."""

from itertools import count

import pytest

from ottla.broker.coordinator.decisions.groups.regexes.matching import Matching, RegexError, check

PLENTY = 1 << 60


def matched(regex: str, *names: str) -> set[str]:
    matching = Matching(regex, names)
    assert matching.go_on(PLENTY)
    return set(matching.found)


def test_the_whole_name_has_to_match() -> None:
    assert matched("orders", "orders", "orders-v2", "reorders") == {"orders"}
    assert matched("^orders.*$", "orders", "orders-v2", "reorders") == {"orders", "orders-v2"}


@pytest.mark.parametrize("regex", ["(", "*a", "a{2000}", r"(a)\1", "(?=a)"], ids=str)
def test_what_is_no_expression_of_re2_is_refused(regex: str) -> None:
    with pytest.raises(RegexError):
        check(regex)


@pytest.mark.parametrize("regex", [r"[\pL\pN]{900}", "(.{1,100}){1,9}x|(.{1,100}){1,9}y", "a" * 32_768])
def test_an_expression_that_is_too_large_is_refused(regex: str) -> None:
    with pytest.raises(RegexError):
        check(regex)


@pytest.mark.parametrize("regex", ["orders.*", "", "|".join(f"topic-{each}" for each in range(2_500))])
def test_expressions_that_people_use_are_taken(regex: str) -> None:
    check(regex)


def test_an_expression_of_an_older_record_that_nobody_can_read_matches_nothing() -> None:
    assert matched("(", "(", "a") == set()


def slices(regex: str, names: list[str], steps: int) -> int:
    matching = Matching(regex, names)
    number = next(each for each in count(1) if matching.go_on(steps))
    assert matching.found == set(names)
    return number


def test_a_slice_has_fewer_names_the_larger_the_expression_and_the_longer_they_are() -> None:
    short, long = ["a" * 10] * 100, ["a" * 240] * 100
    simple, hostile = "a.*", "(.{1,100}){1,10}"
    assert slices(simple, short, 4_000_000) == 1
    assert slices(hostile, short, 4_000_000) < slices(hostile, long, 4_000_000)
    assert slices(hostile, long, 4_000_000) > 40
