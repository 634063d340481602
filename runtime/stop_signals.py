"""The signals that ask a process to stop in order."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Of them SIGHUP (the terminal was closed) as for a JVM: not for a process that was started with nohup."""
    asked = (signal.SIGTERM, signal.SIGINT)
    return asked if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*asked, signal.SIGHUP)
