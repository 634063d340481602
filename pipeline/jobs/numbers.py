"""Numbers in a job's words."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A FloatRange without nan, which no comparison finds outside of a range, and without infinities."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number to work with.", param, ctx)
        return number
