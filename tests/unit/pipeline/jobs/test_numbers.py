"""Numbers that are none are refused where they are said."""

from importlib import import_module

import click
import pytest

from ottla.pipeline.jobs.numbers import FiniteRange
from ottla.pipeline.jobs.registry import JOBS

RATE = FiniteRange(0, min_open=True)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "-1", "1e999"])
def test_what_nobody_can_work_with_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        RATE.convert(text, None, None)


def test_a_number_is_taken() -> None:
    assert RATE.convert("2.5", None, None) == 2.5


def test_no_option_of_a_job_takes_a_float_that_is_none() -> None:
    commands = [getattr(import_module(module), name) for module, name, _ in JOBS.values()]
    options = [option for command in commands for option in command.params]
    assert all(isinstance(each.type, FiniteRange) for each in options if isinstance(each.type, click.FloatRange))
    assert not any(each.type is click.FLOAT for each in options)
