"""Which kernel a problem would get, and why."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ._register import FAKES


@dataclass(frozen=True)
class Explanation:
    """kernel: the implementation's name ("gpu", "tiled", "onednn", ...; several joined by "+"; "pytorch" for the
    fallback). lines: each choice with the refusals of those before it, or the reason of the fallback."""

    kernel: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"kernel: {self.kernel}", *self.lines))


def explain(op: str, *args, **kwargs) -> Explanation:
    """What torch.ops.rocm_sd.<op>(*args, **kwargs) would run; nothing is computed.

        print(rocm_sd_ops.explain("attention", q, k, v))

    Raises ValueError for an unknown operator, RuntimeError for operands that do not fit.
    """
    if op not in FAKES:
        raise ValueError(f"operator {op!r}: expected one of {', '.join(FAKES)}")
    operator = getattr(torch.ops.rocm_sd, op)
    torch.ops.rocm_sd._explain(True)
    try:
        with torch.no_grad():
            operator(*args, **kwargs)
    finally:
        text = torch.ops.rocm_sd._explain(False)
    lines = tuple(text.splitlines())
    if any(": PyTorch's own: " in line for line in lines):
        return Explanation("pytorch", lines)
    kernels = dict.fromkeys(line.split(" -> ", 1)[1].split(" ", 1)[0] for line in lines if " -> " in line)
    return Explanation("+".join(kernels) or "none", lines)


def doctor() -> str:
    """What this machine can do with rocm-sd, what is missing, what each gap costs and how it is mended: `rocm-sd doctor`'s text."""
    return torch.ops.rocm_sd._doctor()


def fallbacks() -> list[str]:
    """Every problem that was left to PyTorch so far, with the reason."""
    return torch.ops.rocm_sd._fallbacks().splitlines()


def set_kernels_enabled(enabled: bool) -> bool:
    """False: every operator runs PyTorch's own, in every thread, as if our kernels declined everything. Returns what was set
    before. For comparisons, and for front ends that switch us off for one picture."""
    return torch.ops.rocm_sd._set_kernels_enabled(enabled)
