"""How a command line ends its process: 0 done, 1 it could not be done (a line says why), 2 its words are off, 130 Ctrl-C."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def clicks_exits() -> Iterator[None]:
    """Ends the process as a command of Click's, called with ``standalone_mode=False``, says that it should."""
    try:
        yield
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
