"""A limit on what cannot be asked to stop: a compiler, a model that is being loaded."""

from __future__ import annotations

import contextlib
import signal
from typing import Iterator


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """TimeoutError in the main thread after so many seconds, between two instructions of Python; 0 or less: never."""
    def over(*_: object) -> None:
        raise TimeoutError(f"not ready after {seconds:.0f} s")

    if seconds <= 0:
        yield
        return
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
