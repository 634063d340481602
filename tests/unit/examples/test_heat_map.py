"""The picture of delays is a sound SVG with a cell for each value."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

_EXAMPLE = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "heat_map.py"))
heat_map, Line = _EXAMPLE["heat_map"], _EXAMPLE["Line"]

SVG = "{http://www.w3.org/2000/svg}"


def test_a_map_has_a_cell_a_value_and_a_line_a_line() -> None:
    cells = {("A & B", 5): -0.4, ("C", 6): 99.0}
    lines = [Line("dry", {5: 1.0, 6: 12.5}), Line("wet", {6: 30.0})]
    text = heat_map("Delays <1 min>", ["A & B", "C"], [5, 6], cells, lines)
    root = ElementTree.fromstring(text)
    words = [each.text for each in root.iter(f"{SVG}text")]
    assert len(list(root.iter(f"{SVG}rect"))) == 1 + len(cells)
    assert len(list(root.iter(f"{SVG}polyline"))) == 2
    assert {"Delays <1 min>", "A & B", "0", "99", "― dry", "― wet"} <= set(words)
    assert text == heat_map("Delays <1 min>", ["A & B", "C"], [5, 6], cells, lines)


def test_a_map_without_values_is_a_map() -> None:
    assert ElementTree.fromstring(heat_map("none", [], [], {}, [])).tag == f"{SVG}svg"
