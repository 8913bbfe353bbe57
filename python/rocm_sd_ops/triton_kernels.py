"""Attention, group norm with SiLU, and GEGLU in Triton: another implementation of three of our operators, for GPUs that Triton compiles
for and for comparison (benchmarks/bench_triton.py). `rocm_sd_ops.use_triton(True)` has the package's functions call them where they
take the operands; by themselves they are called from here. Without gradients. Needs the package triton (PyTorch's GPU builds bring it);
with TRITON_INTERPRET=1, set before this is imported, they run on the CPU."""

from __future__ import annotations

from typing import Any, Optional

import torch
import triton
import triton.language as tl
from torch import Tensor

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_LOG2_E = 1.4426950408889634


@triton.jit
def _attention(q, k, v, y, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, y_batch, y_head, y_row,
               heads, queries, keys, dim, scale, CAUSAL: tl.constexpr, EXACT: tl.constexpr, BLOCK_M: tl.constexpr,
               BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr):
    # Online softmax: one program a tile of queries of one head. scale includes log2(e).
    image, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    in_head = columns < dim
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    q_tile = tl.load(q + image * q_batch + head * q_head + rows[:, None].to(tl.int64) * q_row + columns[None, :],
                     mask=(rows[:, None] < queries) & in_head[None, :], other=0.0)  # [M,D]
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    end = tl.minimum(keys, (tl.program_id(0) + 1) * BLOCK_M) if CAUSAL else keys
    for start in range(0, end, BLOCK_N):
        keys_here = start + tl.arange(0, BLOCK_N)
        seen = keys_here < keys
        k_tile = tl.load(k + image * k_batch + head * k_head + keys_here[None, :].to(tl.int64) * k_row + columns[:, None],
                         mask=seen[None, :] & in_head[:, None], other=0.0)  # [D,N]
        scores = tl.dot(q_tile, k_tile, input_precision=precision) * scale  # [M,N]
        allowed = seen[None, :] & ((keys_here[None, :] <= rows[:, None]) if CAUSAL else True)
        scores = tl.where(allowed, scores, float("-inf"))
        now = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - now[:, None])
        shrink = tl.exp2(most - now)
        total = total * shrink + tl.sum(weights, 1)
        v_tile = tl.load(v + image * v_batch + head * v_head + keys_here[:, None].to(tl.int64) * v_row + columns[None, :],
                         mask=seen[:, None] & in_head[None, :], other=0.0)  # [N,D]
        sums = sums * shrink[:, None] + tl.dot(weights.to(v_tile.dtype), v_tile, input_precision=precision)
        most = now
    tl.store(y + image * y_batch + head * y_head + rows[:, None].to(tl.int64) * y_row + columns[None, :],
             (sums / total[:, None]).to(y.dtype.element_ty), mask=(rows[:, None] < queries) & in_head[None, :])


@triton.jit
def _place(i, group, per_group, channels, pixels, LAST: tl.constexpr):
    # The channel, the pixel and the place in memory of the i-th element of a group.
    channel = group * per_group + (i % per_group if LAST else i // pixels)
    pixel = i // per_group if LAST else i % pixels
    return channel, pixel, pixel.to(tl.int64) * channels + channel if LAST else channel.to(tl.int64) * pixels + pixel


@triton.jit
def _group_norm(x, y, gain, offset, channels, pixels, groups, eps, LAST: tl.constexpr, AFFINE: tl.constexpr, SILU: tl.constexpr,
                BLOCK: tl.constexpr):
    # One program a group of one image: mean, then variance about it, then the result. LAST: x is channels_last; y always is.
    image, group = (tl.program_id(0) // groups).to(tl.int64), tl.program_id(0) % groups
    per_group = channels // groups
    count = per_group * pixels
    x += image * channels * pixels
    y += image * channels * pixels
    mean = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        channel, pixel, at = _place(i, group, per_group, channels, pixels, LAST)
        mean += tl.load(x + at, mask=i < count, other=0.0).to(tl.float32)
    center = tl.sum(mean, 0) / count
    spread = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        channel, pixel, at = _place(i, group, per_group, channels, pixels, LAST)
        off = tl.where(i < count, tl.load(x + at, mask=i < count, other=0.0).to(tl.float32) - center, 0.0)
        spread += off * off
    scale = 1.0 / tl.sqrt(tl.sum(spread, 0) / count + eps)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        channel, pixel, at = _place(i, group, per_group, channels, pixels, LAST)
        value = (tl.load(x + at, mask=i < count, other=0.0).to(tl.float32) - center) * scale
        if AFFINE:
            value = (value * tl.load(gain + channel, mask=i < count, other=0.0).to(tl.float32)
                     + tl.load(offset + channel, mask=i < count, other=0.0).to(tl.float32))
        if SILU:
            value = value / (1.0 + tl.exp(-value))
        tl.store(y + pixel.to(tl.int64) * channels + channel, value.to(y.dtype.element_ty), mask=i < count)


@triton.jit
def _geglu(x, y, count, width, row, BLOCK: tl.constexpr):
    # x [rows,2*width], rows `row` elements apart -> y [rows,width].
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = i // width * row + i % width
    value = tl.load(x + at, mask=i < count, other=0.0).to(tl.float32)
    gate = tl.load(x + at + width, mask=i < count, other=0.0).to(tl.float32)
    gelu = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    tl.store(y + i, (value * gelu).to(y.dtype.element_ty), mask=i < count)


def _interpreted() -> bool:
    return not isinstance(_geglu, triton.runtime.JITFunction)


def _runs(*tensors: Optional[Tensor]) -> bool:
    """On one device, which for a GPU is the current one: Triton starts its kernels there."""
    given = [t for t in tensors if t is not None]
    device = given[0].device
    here = device.index == torch.cuda.current_device() if device.type == "cuda" else device.type == "cpu" and _interpreted()
    return (here and all(t.dtype in _FLOATS and t.numel() > 0 and t.device == device for t in given)
            and not (torch.is_grad_enabled() and any(t.requires_grad for t in given)) and not torch.compiler.is_compiling())


def takes_attention(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor] = None, scale: Optional[float] = None) -> bool:
    """Whether attention() takes these: no mask, one type, heads of at most 256, dense in their last dimension."""
    return (mask is None and scale != 0 and _runs(q, k, v) and q.ndim == k.ndim == v.ndim == 4 and q.dtype == k.dtype == v.dtype
            and q.shape[3] <= 256 and q.shape[0] * q.shape[1] < 2 ** 16  # the most of a grid's second dimension
            and k.shape == v.shape and k.shape[:2] == q.shape[:2] and k.shape[3] == q.shape[3]
            and all(t.stride(3) == 1 or t.shape[3] == 1 for t in (q, k, v)))


def attention(q: Tensor, k: Tensor, v: Tensor, scale: Optional[float] = None, causal: bool = False) -> Tensor:
    """softmax(scale q k^T) v of q [B,H,Nq,D], k and v [B,H,Nk,D] -> [B,H,Nq,D] whose memory is [B,Nq,H,D]; sums in float. causal:
    query i sees keys 0..i. Raises ValueError for what takes_attention() refuses."""
    if not takes_attention(q, k, v, None, scale):
        raise ValueError(f"triton attention: q {q.dtype} {list(q.shape)}, k {k.dtype} {list(k.shape)}, v {v.dtype} {list(v.shape)}: "
                         "expected [B,H,N,D] of one float type on a GPU, D at most 256 and dense")
    batch, heads, queries, dim = q.shape
    y = q.new_empty((batch, queries, heads, dim)).transpose(1, 2)
    wide = max(16, triton.next_power_of_2(dim))
    rows = 64 if wide > 128 or q.dtype == torch.float32 else 128
    columns = 32 if wide > 128 or q.dtype == torch.float32 else 64
    grid = (triton.cdiv(queries, rows), batch * heads)
    _attention[grid](q, k, v, y, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *y.stride()[:3], heads, queries, k.shape[2], dim,
                     (dim ** -0.5 if scale is None else scale) * _LOG2_E, CAUSAL=causal, EXACT=q.dtype == torch.float32,
                     BLOCK_M=rows, BLOCK_N=columns, BLOCK_D=wide, num_warps=8 if wide > 64 else 4, num_stages=2)
    return y


def takes_group_norm_silu(x: Tensor, groups: int, weight: Optional[Tensor], bias: Optional[Tensor], x2: Optional[Tensor]) -> bool:
    """Whether group_norm_silu() takes these: one input, dense, with both parameters or none."""
    return (x2 is None and _runs(x, weight, bias) and x.ndim == 4 and groups > 0 and x.shape[1] % groups == 0 and (weight is None) == (bias is None)
            and all(p is None or (p.shape == (x.shape[1],) and p.is_contiguous()) for p in (weight, bias))
            and x[0].numel() < 2 ** 31 and (x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)))


def group_norm_silu(x: Tensor, groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5,
                    silu: bool = True) -> Tensor:
    """silu(group_norm(x)), or group_norm alone, of x [N,C,H,W] in either memory format -> [N,C,H,W] in channels_last; sums in float.
    Raises ValueError for what takes_group_norm_silu() refuses."""
    if not takes_group_norm_silu(x, groups, weight, bias, None):
        raise ValueError(f"triton group_norm_silu: x {x.dtype} {list(x.shape)} in {groups} groups: expected a dense [N,C,H,W] of a float "
                         "type on a GPU, with weight and bias [C] or neither")
    n, c, h, w = x.shape
    y = torch.empty_like(x, memory_format=torch.channels_last)
    last = x.is_contiguous(memory_format=torch.channels_last)
    _group_norm[(n * groups,)](x, y, x if weight is None else weight, x if bias is None else bias, c, h * w, groups, eps, LAST=last,
                               AFFINE=weight is not None, SILU=silu, BLOCK=2048, num_warps=8)
    return y


def takes_geglu(x: Tensor) -> bool:
    """Whether geglu() takes this: rows of an even length, dense."""
    return _runs(x) and x.ndim >= 1 and x.shape[-1] % 2 == 0 and x.is_contiguous()


def geglu(x: Tensor) -> Tensor:
    """x [...,2C] -> first half times gelu(second half) [...,C], gelu in its erf form. Raises ValueError for what takes_geglu()
    refuses."""
    if not takes_geglu(x):
        raise ValueError(f"triton geglu: x {x.dtype} {list(x.shape)}: expected a dense [...,2C] of a float type on a GPU")
    width = x.shape[-1] // 2
    y: Any = x.new_empty((*x.shape[:-1], width))
    _geglu[(triton.cdiv(y.numel(), 1024),)](x, y, y.numel(), width, 2 * width, BLOCK=1024)
    return y
