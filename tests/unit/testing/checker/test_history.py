"""A history in a file, and the command that judges one."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.testing.checker import HistoryError, Outcome, Produce, Recorder, check_file, now
from ottla.testing.checker.__main__ import main
from ottla.testing.checker.history import parsed, read
from ottla.testing.checker.operations import FOREVER, AnyOperation
from tests.unit.testing.checker.story import final, tried, wrote


def written(path: Path, *operations: AnyOperation) -> Path:
    with Recorder(path) as history:
        for each in operations:
            history.write(each)
    return path


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    told: list[AnyOperation] = [wrote("a", 0, 10, key="k"), tried("b", 20), final("a")]
    assert [each.operation for each in read(written(tmp_path / "h", *told))] == told


def test_a_line_says_only_what_matters() -> None:
    [line] = parsed([b'{"op":"produce","topic":"t","value":"a","begin":5}\n'])
    assert line == (1, Produce(topic="t", value="a", begin=5, end=FOREVER, outcome=Outcome.UNKNOWN))


def test_what_came_of_an_operation_takes_the_place_of_its_beginning(tmp_path: Path) -> None:
    begun, done = tried("a", 10, id=1), wrote("a", 0, 10, id=1)
    other = tried("b", 20, id=2)
    found = list(read(written(tmp_path / "h", begun, other, done)))
    assert found == [(3, done), (2, other)]


def test_a_line_that_was_cut_off_is_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "h", wrote("a", 0, 10))
    with path.open("ab") as file:
        file.write(b'{"op":"produce","top')
    assert len(list(read(path))) == 1


@pytest.mark.parametrize(
    "line", ["nonsense", '{"op":"dance"}', '{"op":"produce","value":"a"}', '{"op":"read","topic":3}']
)
def test_a_line_that_is_no_operation_is_told_by_number(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "h", wrote("a", 0, 10))
    with path.open("ab") as file:
        file.write(f"{line}\n".encode())
    with pytest.raises(HistoryError, match="line 2"):
        list(read(path))


def test_faults_are_for_people(tmp_path: Path) -> None:
    with Recorder(tmp_path / "h") as history:
        history.fault("kill -9", now(), now(), "broker 2")
        history.unclean("t", 0, 1, 2)
    report = check_file(tmp_path / "h")
    assert [each.fault for each in report.faults] == ["kill -9"]
    assert report.exit_code == 0


def test_the_command_says_that_nothing_is_wrong(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(written(tmp_path / "h", wrote("a", 0, 10), final("a")))])
    assert result.exit_code == 0
    assert "nothing is wrong" in result.output
    assert "produce" in result.output


def test_the_command_says_what_is_wrong_and_where(tmp_path: Path) -> None:
    path = written(tmp_path / "h", wrote("a", 0, 10), final())
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 1
    assert "'a' was acknowledged at offset 0: nothing is there" in result.output
    told = json.loads(CliRunner().invoke(main, [str(path), "-o", "json"]).output)
    assert told["valid"] is False
    assert told["anomalies"]["counts"] == {"lost": 1}
    [finding] = told["anomalies"]["findings"]
    assert (finding["kind"], finding["where"], finding["lines"]) == ("lost", "t-0", [1])
    assert told["operations"]["produce"] == {"ok": 1, "fail": 0, "unknown": 0}


def test_the_command_says_what_it_cannot_judge(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, [str(written(tmp_path / "h", wrote("a", 0, 10)))]).exit_code == 2
    assert CliRunner().invoke(main, [str(tmp_path / "none")]).exit_code == 2
