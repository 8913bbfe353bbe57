"""rocm-sd's kernels as PyTorch operators.

    import rocm_sd_ops
    y = rocm_sd_ops.attention(q, k, v)          # or torch.ops.rocm_sd.attention
    print(rocm_sd_ops.explain("attention", q, k, v))

Importing the package loads its library into PyTorch; nothing of PyTorch is changed by that.
"""

from __future__ import annotations

from . import _library

LIBRARY_PATH = _library.load()

from . import _register  # noqa: E402

_register.register()

from .explain import Explanation, explain, fallbacks  # noqa: E402
from .ops import (attention, conv2d_epilogue, geglu, group_norm_silu, layer_norm, layer_norm_residual,  # noqa: E402
                  linear_epilogue, scheduler_step, upsample2x_conv, vae_attention)
from .packs import Pack  # noqa: E402

__version__ = "0.1.0"
__all__ = [
    "Explanation", "LIBRARY_PATH", "Pack", "attention", "conv2d_epilogue", "explain", "fallbacks", "geglu",
    "group_norm_silu", "layer_norm", "layer_norm_residual", "linear_epilogue", "scheduler_step", "upsample2x_conv",
    "vae_attention",
]
