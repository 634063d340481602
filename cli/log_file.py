"""The log file of a node that runs for months: others rename it, fill its disk, remove its directory."""

import logging
from logging.handlers import WatchedFileHandler


class LogFile(WatchedFileHandler):
    """May be renamed or removed meanwhile (logrotate): the next line begins a file of that name. Whoever logs is told of no error."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # the new file cannot be opened: tried again with the next line
            self.handleError(record)
