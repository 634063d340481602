"""The matrix as a page, and as a table."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from ottla.testing.chaos.matrix import complaints, summary, table
from ottla.testing.chaos.page import page
from ottla.testing.chaos.result import FAILED, WELL, Cell, Result

HOME = Path("/somewhere/runs")


def result(fault: str, *cells: Cell, trouble: str = "") -> Result:
    command = f"python -m ottla.testing.chaos.run --fault {fault} --workloads a,b --seed 3"
    directory = str(HOME / f"{fault}-3")
    return Result(
        fault, 3, "combined", 5.0, command, directory, list(cells), ["fired"], ["  0.1 s  fired"], trouble, 21.0
    )


SOUND = Cell("a", WELL, 1234, [], [], str(HOME / "kill-leader-3" / "a.jsonl"))
LOST = Cell("b", FAILED, 10, ["lost: <b>record 7</b>"], ["lost: record 8"])
RESULTS = [result("kill-leader", SOUND, LOST), result("bridge", trouble="NotFired: nothing happened")]


def test_each_cell_leads_to_its_finding_its_history_and_the_command_that_replays_it() -> None:
    text = page(RESULTS, "Ottla under faults", "two runs", HOME)
    assert 'href="#kill-leader-3-b"' in text
    assert 'id="kill-leader-3-b"' in text
    assert 'href="kill-leader-3/a.jsonl"' in text
    assert "--fault bridge --workloads a,b --seed 3" in text
    assert "NotFired: nothing happened" in text
    assert "1 permitted" in text


def test_a_page_needs_nothing_besides_itself_and_takes_nothing_for_markup() -> None:
    text = page(RESULTS, "Ottla under faults", "two runs", HOME)
    assert "&lt;b&gt;record 7&lt;/b&gt;" in text
    assert not any(word in text for word in ("http://", "https://", "<script", "@import", "url("))
    assert "prefers-color-scheme: dark" in text


def test_the_table_has_a_sign_for_each_cell_and_a_failure_says_how_to_have_it_again() -> None:
    out = StringIO()
    Console(file=out, width=100, no_color=True).print(table(RESULTS))
    first, second = out.getvalue().splitlines()[1:3]
    assert "✓" in first
    assert "✗ 1 permitted" in first
    assert "✗" in second
    assert complaints(RESULTS[0]) == [
        "b: lost: <b>record 7</b>",
        f"files: {HOME}/kill-leader-3",
        "again: python -m ottla.testing.chaos.run --fault kill-leader --workloads a,b --seed 3",
    ]
    assert "2 faults, 2 cells, 1 of them well" in summary(RESULTS, 120)
