"""Which changes of a rule are tried."""

import ast
import runpy
from pathlib import Path

import pytest

changes = runpy.run_path(str(Path(__file__).resolve().parents[3] / "tools" / "leave_out.py"))["changes"]


@pytest.mark.parametrize(
    ("rule", "others"),
    [
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a and b and c", ["x = (b and c)", "x = (a and c)", "x = (a and b)"]),
        ("x = not a", ["x = (a)"]),
        ("x = min(a, b + 1)", ["x = (a)", "x = (b + 1)", "x = min(a, (b))"]),
        ("self.x = 1", ["pass"]),
        ("raise E", ["pass"]),
        ("f()", ["pass"]),
        ("logger.info('ß')", []),
        ("def __init__(self):\n    self.x = 1", []),
        ("x = 'ß' if a == b else c", ["x = 'ß' if (a != b) else c"]),
    ],
)
def test_every_rule_is_changed_in_each_way_alone(rule: str, others: list[str]) -> None:
    found = [each.source for each in changes(rule)]
    assert found == others
    for source in found:
        ast.parse(source)
