"""The operators on a GPU under autograd, torch.compile and autocast, with weights written unseen and tensors of two places; and Triton's
kernels there: pytest -m gpu."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from test_torch_gpu import DTYPES, NAMES, case, cases, exact, near, ops, randn  # noqa: F401

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", NAMES)
def test_gradients(ops, name):
    """Of our forward, in float32, against the plain composition's in float64 on the CPU."""
    ours, plain, tensors, terms = case(name, torch.float32)
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    exact_leaves = [t.detach().double().cpu().requires_grad_() for t in tensors]
    made, want = ours(*leaves), plain(*exact_leaves)
    direction = torch.randn(want.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    got = torch.autograd.grad((made * direction.cuda().float()).sum(), leaves)
    wanted = torch.autograd.grad((want * direction).sum(), exact_leaves)
    for g, w in zip(got, wanted):
        size = w.abs().max().item()
        assert (g.double().cpu() - w).abs().max().item() <= 1e-3 * max(size, 1e-3)  # PyTorch's gradients may multiply in TF32


def test_second_derivatives_and_forward_mode(ops):
    x, tangent = randn(2, 3, 8).requires_grad_(), randn(2, 3, 8, seed=1)
    (first,) = torch.autograd.grad(ops.geglu(x).square().sum(), x, create_graph=True)
    plain = x.detach().double().cpu().requires_grad_()
    (want,) = torch.autograd.grad((plain[..., :4] * F.gelu(plain[..., 4:])).square().sum(), plain, create_graph=True)
    got = torch.autograd.grad(first.square().sum(), x)[0].double().cpu()
    torch.testing.assert_close(got, torch.autograd.grad(want.square().sum(), plain)[0], rtol=1e-4, atol=1e-4)
    made = torch.func.jvp(ops.geglu, (x.detach(),), (tangent,))[1]
    torch.testing.assert_close(made, torch.func.jvp(lambda x: x[..., :4] * F.gelu(x[..., 4:]), (x.detach(),), (tangent,))[1])


def operator_samples(dtype):
    r = dict(dtype=dtype)
    return [
        ("attention", (randn(1, 2, 16, 40, **r), randn(1, 2, 16, 40, seed=1, **r), randn(1, 2, 16, 40, seed=2, **r))),
        ("vae_attention", (randn(1, 32, 4, 4, **r), randn(1, 32, 4, 4, seed=1, **r), randn(1, 32, 4, 4, seed=2, **r))),
        ("group_norm_silu", (randn(2, 32, 4, 4, **r), 8, randn(32, **r), randn(32, seed=1, **r))),
        ("layer_norm", (randn(2, 3, 32, **r), randn(32, **r), randn(32, seed=1, **r))),
        ("layer_norm_residual", (randn(2, 32, **r), randn(2, 32, seed=2, **r), randn(32, **r), randn(32, seed=1, **r))),
        ("geglu", (randn(2, 3, 64, **r),)),
        ("linear_epilogue", (randn(2, 3, 32, **r), randn(16, 32, seed=1, **r), randn(16, seed=2, **r))),
        ("conv2d_epilogue", (randn(1, 16, 6, 6, **r), randn(32, 16, 3, 3, seed=1, **r), randn(32, seed=2, **r), 1, [1, 1, 1, 1])),
        ("upsample2x_conv", (randn(1, 16, 3, 3, **r), randn(16, 16, 3, 3, seed=1, **r), randn(16, seed=2, **r))),
        ("scheduler_step", (randn(1, 4, 8, 8, **r), randn(2, 4, 8, 8, seed=1, **r), 0.9, -0.4, 5.0)),
    ]


@pytest.mark.parametrize("index", range(10))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_opcheck(ops, index, dtype):
    name, args = operator_samples(dtype)[index]
    args = tuple(x.requires_grad_() if isinstance(x, torch.Tensor) and dtype == torch.float32 else x for x in args)
    torch.library.opcheck(getattr(torch.ops.rocm_sd, name).default, args)


def block(ops, x, shift, gain, offset, filter, weight, wide):
    """A small block of a UNet made of the operators alone."""
    y = ops.group_norm_silu(x, 8, gain, offset)
    y = ops.conv2d_epilogue(y, filter, padding=1, channel_shift=shift, residual=x)
    tokens = y.permute(0, 2, 3, 1).flatten(1, 2)
    q = ops.linear_epilogue(tokens, weight, residual=tokens).unflatten(-1, (2, 32)).transpose(1, 2)
    y = ops.attention(q, q, q).transpose(1, 2).flatten(2)
    y, total = ops.layer_norm_residual(y, tokens, gain, offset)
    return ops.linear_epilogue(y, wide, geglu=True) + total


def block_arguments(dtype=torch.float32):
    return [randn(2, 64, 8, 8, dtype=dtype), randn(2, 64, dtype=dtype, seed=1), randn(64, dtype=dtype, seed=2),
            randn(64, dtype=dtype, seed=3), randn(64, 64, 3, 3, dtype=dtype, seed=4, scale=0.04),
            randn(64, 64, dtype=dtype, seed=5, scale=0.1), randn(128, 64, dtype=dtype, seed=6, scale=0.1)]


@pytest.mark.parametrize("mode", ["eager", "aot_eager", "default", "reduce-overhead"])
def test_compile(ops, mode):
    torch._dynamo.reset()
    args = block_arguments()
    options = dict(backend=mode) if "eager" in mode else dict(mode=mode)
    compiled = torch.compile(lambda *a: block(ops, *a), fullgraph=True, **options)
    with torch.no_grad():
        want = block(ops, *args)
        for _ in range(4):  # reduce-overhead: warm-up, recording, replays
            torch.testing.assert_close(compiled(*args).clone(), want, rtol=1e-5, atol=1e-5)
        other = [x * 0.5 for x in args]
        torch.testing.assert_close(compiled(*other).clone(), block(ops, *other), rtol=1e-5, atol=1e-5)


def test_compile_with_gradients(ops):
    torch._dynamo.reset()
    leaves = [x.requires_grad_() for x in block_arguments()]
    compiled = torch.compile(lambda *a: block(ops, *a), fullgraph=True)
    want = torch.autograd.grad(block(ops, *leaves).square().mean(), leaves)
    for g, w in zip(torch.autograd.grad(compiled(*leaves).square().mean(), leaves), want):
        torch.testing.assert_close(g, w, rtol=1e-2, atol=1e-3 * w.abs().max().item())


def test_autocast(ops):
    x, weight = randn(2, 77, 320), randn(640, 320, seed=1, scale=0.06)
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        got = ops.linear_epilogue(x, weight)
        assert got.dtype == torch.float16
        near(got, F.linear(x.double(), weight.double()), 320)
        assert ops.group_norm_silu(randn(2, 32, 4, 4), 8, randn(32), randn(32)).dtype == torch.float32


def test_weights_written_unseen(ops):
    """An operator with a Pack on a GPU sees what its owner says (forget)."""
    x, weight = randn(1, 64, 8, 8, dtype=torch.float16), randn(64, 64, 3, 3, dtype=torch.float16, seed=1, scale=0.04)
    pack = ops.Pack()
    with torch.no_grad():
        ops.conv2d_epilogue(x, weight, padding=1, pack=pack.id)
        weight.data.mul_(2)
        pack.forget()
        assert torch.equal(ops.conv2d_epilogue(x, weight, padding=1, pack=pack.id), ops.conv2d_epilogue(x, weight, padding=1))


def test_tensors_of_two_places(ops):
    with pytest.raises(RuntimeError, match="another device|is on"):
        ops.linear_epilogue(randn(2, 8), torch.ones(4, 8))
    with pytest.raises(torch.OutOfMemoryError):
        ops.geglu(torch.empty(1, device="cuda").expand(1, 2 ** 43))


def triton_kernels(ops):
    try:
        return ops.triton_kernels
    except ImportError:
        pytest.skip("this PyTorch brings no Triton")


@pytest.mark.parametrize("dtype", DTYPES)
def test_triton_kernels(ops, dtype):
    kernels = triton_kernels(ops)
    from rocm_sd_ops import _plain

    with torch.no_grad():
        for b, h, queries, keys, dim in ((2, 8, 100, 77, 40), (1, 2, 300, 300, 64), (1, 1, 65, 5, 160)):
            q, k, v = (randn(b, n, h * dim, dtype=dtype, seed=i).unflatten(-1, (h, dim)).transpose(1, 2)
                       for i, n in enumerate((queries, keys, keys)))
            for causal in (False, True):
                want = _plain.attention(*(t.double().cpu() for t in (q, k, v)), causal=causal).cuda()
                near(kernels.attention(q, k, v, causal=causal), want, 4 * (keys + dim))
        x, gain, offset = randn(2, 64, 9, 7, dtype=dtype) + 3, randn(64, seed=1), randn(64, seed=2)
        want = F.silu(F.group_norm(x.double(), 32, gain.double(), offset.double()))
        for form in (x, x.contiguous(memory_format=torch.channels_last)):
            near(kernels.group_norm_silu(form, 32, gain, offset), want, 4096)
        x = randn(3, 77, 640, dtype=dtype)
        near(kernels.geglu(x), _plain.geglu(x.double()), 16)
