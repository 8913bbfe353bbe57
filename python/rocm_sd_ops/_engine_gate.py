"""Who may use a pipeline of the engine at a time: those who draw, as many as it has devices, or one who changes it."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from ctypes import c_int
from typing import Iterator

from ._engine_library import EngineError


class Gate:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._drawing = 0
        self._changing = False
        self._inside: Counter[int] = Counter()  # threads that use the pipeline, or are a callback's
        self._cancels: list[c_int] = []

    @contextmanager
    def drawing(self, most: int) -> Iterator[None]:
        """Waits while somebody changes the pipeline, or `most` draw."""
        with self._changed:
            self._refuse_itself()
            self._changed.wait_for(lambda: not self._changing and self._drawing < most)
            self._drawing += 1
        try:
            with self.callback():
                yield
        finally:
            with self._changed:
                self._drawing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits for everybody."""
        with self._changed:
            self._refuse_itself()
            self._changed.wait_for(lambda: not self._changing and self._drawing == 0)
            self._changing = True
        try:
            with self.callback():
                yield
        finally:
            with self._changed:
                self._changing = False
                self._changed.notify_all()

    @contextmanager
    def callback(self) -> Iterator[None]:
        """The calling thread is in a call of the pipeline."""
        own = threading.get_ident()
        with self._changed:
            self._inside[own] += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[own] -= 1

    @contextmanager
    def cancellable(self) -> Iterator[c_int]:
        """What cancel() sets, as long as the call runs."""
        flag = c_int(0)
        with self._changed:
            self._cancels.append(flag)
        try:
            yield flag
        finally:
            with self._changed:
                self._cancels = [other for other in self._cancels if other is not flag]

    def cancel(self) -> None:
        with self._changed:
            for flag in self._cancels:
                flag.value = 1

    def _refuse_itself(self) -> None:
        if self._inside[threading.get_ident()] > 0:  # it would wait for itself
            raise EngineError(2, "the pipeline is in use: a callback can only cancel the call that it was called by")
