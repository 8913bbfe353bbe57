"""A node package of ComfyUI for benchmarks/bench_low_memory.py, which copies it into a custom_nodes folder: a limit on device memory, and its peak.

ROCM_SD_BENCH_BUDGET, in bytes, is the device memory that PyTorch's allocator may take; a request beyond it fails as on a smaller GPU, and
ComfyUI sees a device of this size, so that it plans for it. What the driver keeps for the process (context, kernels) does not count, as
it does not in rocm-sd's --vram-budget. The node ends a workflow in place of SaveImage: no file is encoded.
"""

from __future__ import annotations

import os

import torch

BUDGET = int(os.environ.get("ROCM_SD_BENCH_BUDGET", "0"))


def keep_within(budget: int) -> None:
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(min(1.0, budget / total))
    torch.cuda.mem_get_info = lambda device=None: (max(0, budget - torch.cuda.memory_reserved(device)), budget)


if BUDGET and torch.cuda.is_available():
    keep_within(BUDGET)


class RocmSDMemoryPeak:
    """Ends a workflow: what was reserved and in use at most since the one before, in bytes, and whether the image is finite."""

    @classmethod
    def INPUT_TYPES(cls) -> dict:  # noqa: N802 (ComfyUI's name)
        return {"required": {"images": ("IMAGE",)}}

    RETURN_TYPES = ()
    FUNCTION = "tell"
    OUTPUT_NODE = True
    CATEGORY = "rocm-sd"

    def tell(self, images: torch.Tensor) -> dict:
        reserved = used = 0
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            reserved, used = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        return {"ui": {"reserved": [reserved], "used": [used], "finite": [bool(torch.isfinite(images).all())]}}


NODE_CLASS_MAPPINGS = {"RocmSDMemoryPeak": RocmSDMemoryPeak}
