"""Times of calls of PyTorch in ms, for benchmarks/torch_peer.py and tests/performance_tests/bench_torch.py."""

from __future__ import annotations

import time
from typing import Callable

import torch


def waited(call: Callable, count: int, cuda: bool = True, pause: float = 0) -> list[float]:
    """Of calls that are waited for, `pause` seconds after the one before: by device events, or by a clock on a CPU."""
    times = []
    if cuda:
        torch.cuda.synchronize()
    for _ in range(count):
        start = time.perf_counter()
        if cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            call()
            times.append((time.perf_counter() - start) * 1e3)
        if pause:
            time.sleep(pause)
    return times


def in_turn(call: Callable, count: int = 20, cuda: bool = True) -> float:
    """Of one of several calls that nobody waits for."""
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e3
