"""A port that cannot be had: one line that names the listener and what to do."""

import errno

import pytest

from ottla.broker.listening import naming
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.settings.endpoints import Listener

LISTENER = Listener("PLAINTEXT", "localhost", 9092)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.EADDRINUSE, "in use"),
            "another process listens there: end it, or give this listener another port",
        ),
        (OSError(errno.EADDRNOTAVAIL, "no"), "this machine has no such address"),
        (OSError(errno.EACCES, "no"), "a higher one"),
        (OSError(errno.EMFILE, "too many open files"), "too many open files"),
        (OSError("the name is not known"), "the name is not known"),
    ],
)
def test_a_listener_that_cannot_be_bound_is_named(error: OSError, words: str) -> None:
    with pytest.raises(SettingError, match=rf"^listeners=PLAINTEXT://localhost:9092: .*{words}"), naming(LISTENER):
        raise error
