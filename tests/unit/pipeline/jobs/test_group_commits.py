"""Groups' offsets follow the batches, and never hold a job up."""

import threading

from ottla.pipeline.jobs.checkpoint import Offsets
from ottla.pipeline.jobs.group_commits import GroupCommits


class Broker:
    """Takes commits one at a time, when the test lets it."""

    def __init__(self) -> None:
        self.taken: list[Offsets] = []
        self.said: list[str] = []
        self.failures: list[Exception] = []
        self.is_closed = False
        self.asked, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, offsets: Offsets) -> None:
        self.asked.release()
        self.go.acquire()
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append(offsets)

    def close(self) -> None:
        self.is_closed = True


def test_only_the_newest_offsets_are_committed_while_a_commit_takes_long() -> None:
    broker = Broker()
    commits = GroupCommits("g", broker, broker.said.append)
    commits.tell({("t", 0): 1})
    broker.asked.acquire()
    commits.tell({("t", 0): 2})
    commits.tell({("t", 0): 3})
    broker.go.release(2)
    commits.close()
    assert broker.taken == [{("t", 0): 1}, {("t", 0): 3}]


def test_the_last_offsets_are_committed_before_the_end() -> None:
    broker = Broker()
    broker.go.release()
    commits = GroupCommits("g", broker, broker.said.append)
    commits.tell({("t", 0): 1})
    commits.close()
    assert broker.taken == [{("t", 0): 1}]


def test_offsets_that_are_committed_already_are_not_sent_again() -> None:
    broker = Broker()
    broker.go.release(2)
    commits = GroupCommits("g", broker, broker.said.append)
    commits.tell({("t", 0): 1})
    broker.asked.acquire()
    commits.tell({("t", 0): 1})
    commits.close()
    assert broker.taken == [{("t", 0): 1}]


def test_failing_commits_are_said_once_and_when_they_are_over() -> None:
    broker = Broker()
    broker.failures = [OSError("no\nbroker"), OSError("no broker")]
    broker.go.release(3)
    commits = GroupCommits("g", broker, broker.said.append)
    for offset in range(3):
        commits.tell({("t", 0): offset})
        broker.asked.acquire()
    commits.close()
    assert broker.taken == [{("t", 0): 2}]
    assert broker.said == [
        "group g: offsets are not committed: no broker",
        "group g: offsets are committed again",
    ]


def test_nothing_is_committed_where_nothing_is_known() -> None:
    broker = Broker()
    commits = GroupCommits("g", broker, broker.said.append)
    commits.tell({})
    commits.close()
    assert (broker.taken, broker.is_closed) == ([], True)
