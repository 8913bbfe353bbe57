"""profile(): where the time of a piece of PyTorch code goes, our operators among it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Union

import torch


class profile:
    """Context manager over torch.profiler.

        with rocm_sd_ops.profile() as p:
            pipe(prompt)
        print(p.table())
        p.export_chrome_trace("trace.json")
    """

    def __init__(self, record_shapes: bool = False) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities, record_shapes=record_shapes)

    def __enter__(self) -> "profile":
        self._profiler.__enter__()
        return self

    def __exit__(self, *error: Any) -> Optional[bool]:
        return self._profiler.__exit__(*error)

    def rows(self, ours_only: bool = False) -> list[dict[str, Any]]:
        """One dict an operator, the costliest first: name, calls, host_ms and device_ms of itself alone, ours."""
        rows = [dict(name=e.key, calls=e.count, host_ms=e.self_cpu_time_total / 1e3,
                     device_ms=getattr(e, "self_device_time_total", 0) / 1e3, ours=e.key.startswith("rocm_sd::"))
                for e in self._profiler.key_averages()]
        rows.sort(key=lambda r: (r["device_ms"], r["host_ms"]), reverse=True)
        return [r for r in rows if r["ours"]] if ours_only else rows

    def table(self, limit: int = 25, ours_only: bool = False) -> str:
        """The rows as text."""
        lines = [f"{'operator':<56}{'calls':>8}{'host ms':>11}{'device ms':>11}"]
        lines += [f"{r['name'][:55]:<56}{r['calls']:>8}{r['host_ms']:>11.3f}{r['device_ms']:>11.3f}"
                  for r in self.rows(ours_only)[:limit]]
        return "\n".join(lines)

    def export_chrome_trace(self, path: Union[str, Path]) -> None:
        """A trace for chrome://tracing or Perfetto."""
        self._profiler.export_chrome_trace(str(path))
