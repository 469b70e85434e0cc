"""What holds for all tests: Ctrl-C reaches the programs that they start."""

import signal


def pytest_configure() -> None:
    """Undo an inherited "ignore", which a shell gives to what it starts in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
