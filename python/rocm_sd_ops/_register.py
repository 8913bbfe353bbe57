"""What torch.compile and autograd need of the operators: fake functions (sizes, types and strides of the results) and
gradients, which are PyTorch's own gradients of the plain compositions."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from . import _plain

LIBRARY = torch.library.Library("rocm_sd", "FRAGMENT")  # noqa: TOR901 (lives as long as the module)


def _empty_nhwc(x: Tensor, n: int, c: int, h: int, w: int) -> Tensor:
    return x.new_empty((n, h, w, c)).permute(0, 3, 1, 2)


def _fake_attention(q, k, v, mask=None, scale=None, causal=False):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3])).transpose(1, 2)


def _fake_image(x, *args, **kwargs):
    return _empty_nhwc(x, *x.shape)


def _fake_group_norm_silu(x, groups, weight=None, bias=None, eps=1e-5, silu=True, x2=None):
    n, c, h, w = x.shape
    return _empty_nhwc(x, n, c if x2 is None else c + x2.shape[1], h, w)


def _fake_rows(x, *args, **kwargs):
    return x.new_empty(x.shape)


def _fake_geglu(x):
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def _fake_linear(x, weight, bias=None, residual=None, act="none", geglu=False, pack=0):
    return x.new_empty((*x.shape[:-1], weight.shape[0] // 2 if geglu else weight.shape[0]))


def _fake_conv2d(x, weight, bias=None, stride=1, padding=(0, 0, 0, 0), channel_shift=None, residual=None, act="none",
                 x2=None, pack=0):
    top, left, bottom, right = padding
    return _empty_nhwc(x, x.shape[0], weight.shape[0], (x.shape[2] + top + bottom - weight.shape[2]) // stride + 1,
                       (x.shape[3] + left + right - weight.shape[3]) // stride + 1)


def _fake_upsample(x, weight, bias=None, padding=1, pack=0):
    return _empty_nhwc(x, x.shape[0], weight.shape[0], 2 * x.shape[2] + 2 * padding - weight.shape[2] + 1,
                       2 * x.shape[3] + 2 * padding - weight.shape[3] + 1)


def _fake_run_op(inputs, op, problem):
    with _disable_current_modes():  # a question about texts, which no fake tensor mode could answer
        dtype, *extents = torch.ops.rocm_sd._op_result(op, problem).split()
    return inputs[0].new_empty([int(n) for n in extents], dtype=_DTYPES[dtype])


_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

FAKES: dict[str, Callable] = {
    "attention": _fake_attention,
    "vae_attention": _fake_image,
    "group_norm_silu": _fake_group_norm_silu,
    "layer_norm": _fake_rows,
    "layer_norm_residual": lambda x, *args, **kwargs: (x.new_empty(x.shape), x.new_empty(x.shape)),
    "geglu": _fake_geglu,
    "linear_epilogue": _fake_linear,
    "conv2d_epilogue": _fake_conv2d,
    "upsample2x_conv": _fake_upsample,
    "scheduler_step": _fake_rows,
}
# The plain composition of each, and how many of the operator's arguments it takes (all but `pack`).
PLAIN: dict[str, tuple[Callable, int]] = {
    "attention": (_plain.attention, 6),
    "vae_attention": (_plain.vae_attention, 4),
    "group_norm_silu": (_plain.group_norm_silu, 7),
    "layer_norm": (_plain.layer_norm, 4),
    "layer_norm_residual": (_plain.layer_norm_residual, 5),
    "geglu": (_plain.geglu, 1),
    "linear_epilogue": (_plain.linear_epilogue, 6),
    "conv2d_epilogue": (_plain.conv2d_epilogue, 9),
    "upsample2x_conv": (_plain.upsample2x_conv, 4),
    "scheduler_step": (_plain.scheduler_step, 9),
}


# What torch.autocast makes of each: like PyTorch's own, matrix products run in autocast's type and norms in float32; the others take
# what they are given, in the widest type among it.
_LOWER = ("attention", "vae_attention", "linear_epilogue", "conv2d_epilogue", "upsample2x_conv")
_FLOAT = ("group_norm_silu", "layer_norm", "layer_norm_residual")


def _checked(name: str, fake: Callable) -> Callable:
    """The fake function, for operands of one device: the kernels refuse others, and PyTorch asks a fake function, not a kernel, where
    any of the operands is on the device "meta"."""

    def call(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        for other in (*args, *kwargs.values()):
            if isinstance(other, Tensor) and other.device != x.device:
                raise RuntimeError(f"rocm_sd::{name}: an operand is on {other.device}, the first one on {x.device}")
        if name == "attention":
            mask = args[2] if len(args) > 2 else kwargs.get("mask")
            if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
                raise RuntimeError(f"rocm_sd::attention: mask is {mask.dtype}: expected bool (True is seen) or a float type")
        return fake(x, *args, **kwargs)

    return call


def _save_inputs(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.is_tensor = [isinstance(x, Tensor) for x in inputs]
    ctx.others = [None if isinstance(x, Tensor) else x for x in inputs]
    ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))


def _gradients(plain: Callable, count: int, ctx: Any, grads: tuple) -> tuple:
    """`plain` again under autograd, and its gradients; those can be differentiated where create_graph asks for it."""
    saved = iter(ctx.saved_tensors)
    args = [next(saved) if is_tensor else other for is_tensor, other in zip(ctx.is_tensor, ctx.others)]
    wanted = [i for i, needed in enumerate(ctx.needs_input_grad) if needed and isinstance(args[i], Tensor)]
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        for i in wanted:  # each its own: the same tensor may be several operands
            args[i] = args[i].view_as(args[i]) if again else args[i].detach().requires_grad_()
        made = _differentiable(plain, args[:count]) if again else plain(*args[:count])
    outputs = made if isinstance(made, tuple) else (made,)
    pairs = [(y, g) for y, g in zip(outputs, grads) if g is not None and y.requires_grad]
    gradients: list = [None] * len(args)
    if pairs and wanted:
        found = torch.autograd.grad([y for y, _ in pairs], [args[i] for i in wanted], [g for _, g in pairs],
                                    create_graph=again, allow_unused=True)
        for i, gradient in zip(wanted, found):
            gradients[i] = gradient
    return tuple(gradients)


def _differentiable(plain: Callable, args: Any) -> Any:
    """`plain` with the one of PyTorch's attentions that has all derivatives."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return plain(*args)


def _autograd_kernel(name: str, plain: Callable, count: int) -> Callable:
    """What the operator does at PyTorch's autograd key: notes what the gradients need, and passes the call on. Where forward-mode
    derivatives are being computed it is the plain composition, whose parts know theirs."""
    operator = getattr(torch.ops.rocm_sd, name).default
    below = torch._C._after_autograd_keyset  # type: ignore[attr-defined]

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keyset: Any, *args: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                result = operator.redispatch(keyset & below, *args)
            _save_inputs(ctx, args, result)
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple:
            ctx_needs = ctx.needs_input_grad[1:]
            return (None, *_gradients(plain, count, _Context(ctx, ctx_needs), grads))

    Function.__name__ = f"RocmSd_{name}"

    def kernel(keyset: Any, *args: Any) -> Any:
        if forward_ad._current_level >= 0 and any(isinstance(x, Tensor) and _has_tangent(x) for x in args):
            return _differentiable(plain, args[:count])
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):  # type: ignore[attr-defined]
            return Function.apply(keyset, *args)
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & below, *args)

    return kernel


class _Context:
    """An autograd context without the first operand."""

    def __init__(self, ctx: Any, needs_input_grad: tuple) -> None:
        self.is_tensor, self.others, self.saved_tensors = ctx.is_tensor, ctx.others, ctx.saved_tensors
        self.needs_input_grad = needs_input_grad


def _has_tangent(x: Tensor) -> bool:
    return forward_ad.unpack_dual(x).tangent is not None


def _autocast_kernel(name: str, device: str) -> Callable:
    operator = getattr(torch.ops.rocm_sd, name).default
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU if device == "cpu" else torch._C.DispatchKey.AutocastCUDA)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        floats = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point()]
        if any(x.dtype == torch.float64 for x in floats):
            wide = None  # as PyTorch's autocast: float64 stays
        elif name in _LOWER:
            wide = torch.get_autocast_dtype(device)
        elif name in _FLOAT:
            wide = torch.float32
        else:
            wide = None
            for x in floats:
                wide = x.dtype if wide is None else torch.promote_types(wide, x.dtype)

        def cast(x: Any) -> Any:
            return x.to(wide) if wide is not None and isinstance(x, Tensor) and x.is_floating_point() else x

        with torch._C._ExcludeDispatchKeyGuard(key):
            return operator(*(cast(x) for x in args), **{k: cast(v) for k, v in kwargs.items()})

    return kernel


def register() -> None:
    """Once, after the library was loaded."""
    for name, (schema, function) in _plain.SCHEMAS.items():
        LIBRARY.define(name + schema)
        LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    torch.library.register_fake("rocm_sd::run_op", _fake_run_op, lib=LIBRARY)
    for name, fake in FAKES.items():
        torch.library.register_fake(f"rocm_sd::{name}", _checked(name, fake), lib=LIBRARY)
        LIBRARY.impl(name, _autograd_kernel(name, *PLAIN[name]), "Autograd", with_keyset=True)
        LIBRARY.impl(name, _autocast_kernel(name, "cpu"), "AutocastCPU")
        LIBRARY.impl(name, _autocast_kernel(name, "cuda"), "AutocastCUDA")
