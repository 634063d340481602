import pytest

from tests.unit.pipeline.sinks.tables import SINKS


@pytest.fixture(params=SINKS)
def form(request: pytest.FixtureRequest) -> str:
    """What holds for one kind of table holds for the other."""
    return str(request.param)
