"""What torch.compile and autograd need of the operators: fake functions (sizes, types and strides of the results) and
gradients, which are PyTorch's own gradients of the plain compositions."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

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


def _save_inputs(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.is_tensor = [isinstance(x, Tensor) for x in inputs]
    ctx.others = [None if isinstance(x, Tensor) else x for x in inputs]
    ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))


def _gradient_of(plain: Callable, count: int) -> Callable:
    """backward() that runs `plain` again under autograd and takes its gradients."""

    def backward(ctx: Any, *grads: Tensor) -> tuple:
        saved = iter(ctx.saved_tensors)
        args = [next(saved) if is_tensor else other for is_tensor, other in zip(ctx.is_tensor, ctx.others)]
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad) if needed and isinstance(args[i], Tensor)]
        with torch.enable_grad():
            for i in wanted:
                args[i] = args[i].detach().requires_grad_()
            made = plain(*args[:count])
        outputs = made if isinstance(made, tuple) else (made,)
        pairs = [(y, g) for y, g in zip(outputs, grads) if g is not None and y.requires_grad]
        gradients: list = [None] * len(args)
        if pairs and wanted:
            found = torch.autograd.grad([y for y, _ in pairs], [args[i] for i in wanted], [g for _, g in pairs],
                                        allow_unused=True)
            for i, gradient in zip(wanted, found):
                gradients[i] = gradient
        return tuple(gradients)

    return backward


def register() -> None:
    """Once, after the library was loaded."""
    for name, (schema, function) in _plain.SCHEMAS.items():
        LIBRARY.define(name + schema)
        LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    for name, fake in FAKES.items():
        torch.library.register_fake(f"rocm_sd::{name}", fake, lib=LIBRARY)
        plain, count = PLAIN[name]
        torch.library.register_autograd(f"rocm_sd::{name}", _gradient_of(plain, count), setup_context=_save_inputs,
                                        lib=LIBRARY)
