"""A fleet's records go to a cluster and are all found there, each once and in order; what is not as it should be is told."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from ottla.cli.failures import CommandError
from ottla.cli.topic_requests import create_topic
from ottla.pipeline.jobs.check import check
from ottla.pipeline.jobs.generate import generate
from ottla.testing import Cluster

FLEET = ["--records", "20000", "--vehicles", "200", "--offline", "0.2"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Cluster(nodes=1) as cluster:
        yield cluster.bootstrap_servers


def done(command: object, *words: str) -> Result:
    result = CliRunner().invoke(command, [*words, "-o", "json"])  # type: ignore[arg-type]
    if isinstance(result.exception, CommandError):
        raise result.exception
    return result


def test_all_of_a_fleet_is_found_in_its_topics(bootstrap: str) -> None:
    made = done(generate, "-b", bootstrap, *FLEET, "--prefix", "whole", "--partitions", "3")
    assert [row["topic"] for row in json.loads(made.stdout)] == ["whole_V", "whole_alerts", "whole_connectivity"]
    found = done(check, "-b", bootstrap, *FLEET, "--prefix", "whole")
    assert found.exit_code == 0
    for row, sent in zip(json.loads(found.stdout), json.loads(made.stdout), strict=True):
        assert row["records"] == row["expected"] == sent["records"] > 0
        assert row["lost"] == row["doubled"] == row["reordered"] == row["foreign"] == 0


def test_records_leave_at_a_rate_and_all_arrive(bootstrap: str) -> None:
    words = ["--records", "2000", "--vehicles", "50", "--prefix", "slow", "--kind", "V"]
    made = done(generate, "-b", bootstrap, *words, "--rate", "4000")
    assert json.loads(made.stdout)[0]["seconds"] > 0.35
    assert done(check, "-b", bootstrap, *words).exit_code == 0


def test_what_comes_twice_is_refused_until_it_is_wanted_and_then_found(bootstrap: str) -> None:
    words = ["-b", bootstrap, *FLEET, "--prefix", "twice", "--kind", "alerts"]
    assert done(generate, *words).exit_code == 0
    with pytest.raises(CommandError, match=r"topic twice_alerts holds .* records: delete it"):
        done(generate, *words)
    assert done(generate, *words, "--append").exit_code == 0
    found = done(check, *words)
    assert found.exit_code == 1
    (row,) = json.loads(found.stdout)
    assert row["doubled"] == row["expected"]
    assert "twice_alerts: doubled, for instance 5FLEET" in found.stderr


def test_another_fleets_records_are_not_taken_for_these(bootstrap: str) -> None:
    words = ["-b", bootstrap, "--prefix", "other", "--kind", "V", "--vehicles", "200"]
    assert done(generate, *words, "--records", "1000").exit_code == 0
    found = done(check, *words, "--records", "900")
    assert found.exit_code == 1
    (row,) = json.loads(found.stdout)
    assert row["records"] == 1_000
    assert row["foreign"] - row["lost"] == 100


def test_a_topic_that_would_forget_the_records_is_refused(bootstrap: str) -> None:
    assert list(create_topic(bootstrap, "short_V", 1, 1, [], {"retention.ms": "3600000"}))
    with pytest.raises(CommandError, match="short_V deletes records older than 3600000 ms"):
        done(generate, "-b", bootstrap, *FLEET, "--prefix", "short", "--kind", "V")


def test_a_topic_that_is_not_there_cannot_be_checked(bootstrap: str) -> None:
    with pytest.raises(CommandError, match="none_V"):
        done(check, "-b", bootstrap, *FLEET, "--prefix", "none", "--kind", "V")
