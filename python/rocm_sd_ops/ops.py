"""The operators with types and documentation. Each is torch.ops.rocm_sd.<name>: it runs on the CPU and on CUDA and ROCm
devices, under autograd and torch.compile, on PyTorch's current stream, with memory of PyTorch's allocator, and falls back
to PyTorch's own operators (one log line per problem) where our kernels decline: float64, float16 on the CPU, a GPU without
kernels. Operands of different devices, or sizes that do not fit, raise RuntimeError; where PyTorch's allocator has no memory left
the functions of this module raise torch.OutOfMemoryError, as PyTorch's do (torch.ops.rocm_sd itself: RuntimeError)."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, Sequence, Union

import torch
from torch import Tensor
from torch.autograd import forward_ad


class Below(threading.local):
    """Whether this thread has left autograd's dispatch already (a model's whole forward does)."""

    autograd = False


below = Below()


def as_torch_raises(error: RuntimeError) -> RuntimeError:
    """The error as PyTorch would raise it: extensions over its stable ABI have but one kind, and front ends go on in tiles only where
    they meet torch.OutOfMemoryError."""
    if "out of memory" in str(error) and not isinstance(error, torch.OutOfMemoryError):
        return torch.OutOfMemoryError(str(error))
    return error


def _operator(name: str) -> Callable[..., Any]:
    """torch.ops.rocm_sd.<name>. Without gradients it is called below autograd, whose wrapper of our operators is Python and costs
    more than the operator."""
    operator = getattr(torch.ops.rocm_sd, name).default

    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return operator(*args)
        try:
            if torch.is_grad_enabled() or below.autograd or forward_ad._current_level >= 0:
                return operator(*args)
            with torch._C._AutoDispatchBelowAutograd():
                return operator(*args)
        except RuntimeError as error:
            if (other := as_torch_raises(error)) is not error:
                raise other from None
            raise

    return call


_triton: Any = None  # the module triton_kernels, where its functions are to be used


def use_triton(enabled: bool = True) -> bool:
    """Whether attention, group_norm_silu and geglu of this package run Triton's kernels (triton_kernels) where those take the operands:
    in every thread, without gradients. torch.ops.rocm_sd.* stay ours. Returns what was set before. Raises ImportError without
    Triton."""
    global _triton
    before = _triton is not None
    if enabled:
        try:
            from . import triton_kernels
        except ModuleNotFoundError as missing:
            raise ImportError(f"rocm_sd_ops.use_triton: {missing}: install PyTorch's GPU build, which brings it, or the package triton"
                              ) from missing
        _triton = triton_kernels
    else:
        _triton = None
    return before


_attention = _operator("attention")
_vae_attention = _operator("vae_attention")
_group_norm_silu = _operator("group_norm_silu")
_layer_norm = _operator("layer_norm")
_layer_norm_residual = _operator("layer_norm_residual")
_geglu = _operator("geglu")
_linear_epilogue = _operator("linear_epilogue")
_conv2d_epilogue = _operator("conv2d_epilogue")
_upsample2x_conv = _operator("upsample2x_conv")
_scheduler_step = _operator("scheduler_step")
_run_op = _operator("run_op")


def run_op(op: str, problem: str, *inputs: Tensor) -> Tensor:
    """An op of this package by its name and a problem's text, as `rocm-sd bench` takes both: run_op("dequantize",
    "i8 to f16 [320,1280]", values, scales). Inputs have the problem's types and as many elements as it says; the result is the op's
    first output. For ops without a function of their own here: no gradients, and no way back to PyTorch's operators."""
    return _run_op(list(inputs), op, problem)


def attention(q: Tensor, k: Tensor, v: Tensor, *, mask: Optional[Tensor] = None, scale: Optional[float] = None,
              causal: bool = False) -> Tensor:
    """softmax(scale q k^T + mask) v, the scores never in memory.

    q [B,H,Nq,D], k and v [B,H,Nk,D], any strides; heads that lie beside one another (x.view(B,N,H,D).transpose(1,2)) are
    read in place. mask: bool (True is seen) or additive, broadcast to [B,H,Nq,Nk]. scale: 1/sqrt(D) if None. causal:
    query i sees keys 0..i. Returns [B,H,Nq,D] whose memory is [B,Nq,H,D], so that .transpose(1,2).reshape(B,Nq,H*D) is
    free. A query that sees no key gives zeros.
    """
    if _triton is not None and _triton.takes_attention(q, k, v, mask, scale):
        return _triton.attention(q, k, v, scale, causal)
    return _attention(q, k, v, mask, scale, causal)


def vae_attention(q: Tensor, k: Tensor, v: Tensor, *, scale: Optional[float] = None) -> Tensor:
    """Attention of one head over the pixels of q, k, v [B,C,H,W] -> [B,C,H,W] in channels_last."""
    return _vae_attention(q, k, v, scale)


def group_norm_silu(x: Tensor, groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                    eps: float = 1e-5, *, silu: bool = True, x2: Optional[Tensor] = None) -> Tensor:
    """silu(group_norm(x)), or group_norm alone; with x2, of their concatenation along channels, which is not made.

    x [N,C,H,W], x2 [N,C2,H,W], weight and bias [C+C2] in x's type or float32 -> [N,C+C2,H,W] in channels_last. Statistics
    in float. An x in channels_last is read in place.
    """
    if _triton is not None and _triton.takes_group_norm_silu(x, groups, weight, bias, x2):
        return _triton.group_norm_silu(x, groups, weight, bias, eps, silu)
    return _group_norm_silu(x, groups, weight, bias, eps, silu, x2)


def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5) -> Tensor:
    """Layer norm of x [...,C] over its last dimension; weight and bias [C] in x's type or float32."""
    return _layer_norm(x, weight, bias, eps)


def layer_norm_residual(x: Tensor, residual: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
                        eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """(layer_norm(x + residual), x + residual) for x and residual [...,C]."""
    return _layer_norm_residual(x, residual, weight, bias, eps)


def geglu(x: Tensor) -> Tensor:
    """x [...,2C] -> first half times gelu(second half) [...,C], gelu in its erf form."""
    if _triton is not None and _triton.takes_geglu(x):
        return _triton.geglu(x)
    return _geglu(x)


def linear_epilogue(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *, residual: Optional[Tensor] = None,
                    act: str = "none", geglu: bool = False, pack: int = 0) -> Tensor:
    """act(x weight^T + bias + residual), or geglu(x weight^T + bias).

    x [...,K], weight [M,K], bias [M] in x's type or float32, residual [...,M] -> [...,M] ([...,M/2] with geglu).
    act: none, silu, gelu, quick_gelu or relu. pack: Pack.id of this weight (rocm_sd_ops.Pack), 0 for none.
    """
    return _linear_epilogue(x, weight, bias, residual, act, geglu, pack)


def conv2d_epilogue(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *, stride: int = 1,
                    padding: Union[int, Sequence[int]] = 0, channel_shift: Optional[Tensor] = None,
                    residual: Optional[Tensor] = None, act: str = "none", x2: Optional[Tensor] = None,
                    pack: int = 0) -> Tensor:
    """act(conv2d(x) + bias + channel_shift + residual), in channels_last.

    x [N,C,H,W], x2 [N,C2,H,W] (as if concatenated), weight [K,C+C2,R,S], bias [K], channel_shift [N,K],
    residual [N,K,P,Q] -> [N,K,P,Q]. padding: one number, (vertical, horizontal), or (top, left, bottom, right). Without a
    pack the filter is laid out in every call.
    """
    sides = [padding] * 4 if isinstance(padding, int) else list(padding) * (2 if len(padding) == 2 else 1)
    return _conv2d_epilogue(x, weight, bias, stride, sides, channel_shift, residual, act, x2, pack)


def upsample2x_conv(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *, padding: int = 1,
                    pack: int = 0) -> Tensor:
    """conv2d of x doubled by nearest neighbour, without making that: x [N,C,H,W], weight [K,C,R,S] -> channels_last."""
    return _upsample2x_conv(x, weight, bias, padding, pack)


def scheduler_step(sample: Tensor, model_output: Tensor, sample_scale: float, output_scale: float, *,
                   guidance: float = 1.0, noise: Optional[Tensor] = None, noise_scale: float = 0.0,
                   previous: Optional[Tensor] = None, previous_scale: float = 0.0) -> Tensor:
    """sample_scale * sample + output_scale * guided + noise_scale * noise + previous_scale * previous in one pass.

    guided is model_output where it has sample's shape; where its first dimension is twice as long (unconditional half
    first) it is uncond + guidance * (cond - uncond). Summed in double on the way, returned in sample's type.
    """
    return _scheduler_step(sample, model_output, sample_scale, output_scale, guidance, noise, noise_scale, previous,
                               previous_scale)
