"""What holds for all tests."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ottla.testing.last_words import all_last_words

# The machine may be busy: how long an example takes says nothing about it. What is drawn follows from the test's name, so that a change
# fails by what it did; `make deep-unit` (``--hypothesis-profile=drawn``) draws others every time, and more of them.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("drawn", PATIENT, max_examples=1_000, print_blob=True)
settings.register_profile("ottla", PATIENT, derandomize=True)
settings.load_profile("ottla")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A failure that may not come again is told with what the nodes logged."""
    report = yield
    if report.failed and call.when == "call" and hasattr(report.longrepr, "addsection") and (words := all_last_words()):
        report.longrepr.addsection("what nodes logged last", words)
    return report
