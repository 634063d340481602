"""A history for each anomaly that the checker says it sees, and one beside it that is fine."""

import pytest

from ottla.testing.checker import Kind
from tests.unit.testing.checker.anomalies.case import Case
from tests.unit.testing.checker.anomalies.last_values import ADMIN, REGISTERS
from tests.unit.testing.checker.anomalies.offsets import LISTS
from tests.unit.testing.checker.anomalies.records import RECORDS
from tests.unit.testing.checker.anomalies.transactions import GROUPS, TRANSACTIONS
from tests.unit.testing.checker.story import (
    judged,
)

CASES = RECORDS + LISTS + TRANSACTIONS + GROUPS + REGISTERS + ADMIN


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_anomaly_is_found(case: Case) -> None:
    report = judged(*case.wrong)
    told = [each.sentence for each in report.anomalies if each.kind is case.kind]
    assert any(case.words in each for each in told), str(report)
    assert report.exit_code == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_nearly_an_anomaly_is_none(case: Case) -> None:
    report = judged(*case.fine)
    assert report.anomalies == [], str(report)


def test_every_kind_of_anomaly_has_a_test() -> None:
    assert {each.kind for each in CASES} == set(Kind)
