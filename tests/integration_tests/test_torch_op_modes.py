"""torch.ops.rocm_sd under what PyTorch can ask of an operator besides its result: derivatives of other kinds, autocast, tensors of
another device or layout, masks of another type."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from test_torch_op_contracts import samples
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch_ops import assert_near, attention_double, load_package, packed_heads, randn

pytestmark = pytest.mark.in_python


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


def operator(name):
    return getattr(torch.ops.rocm_sd, name)


@pytest.mark.parametrize("index", range(14))
def test_forward_mode_derivatives(ops, index):
    name, args = samples(torch.float64, grad=True)[index]
    assert gradcheck(operator(name), args, check_forward_ad=True, check_backward_ad=False)


@pytest.mark.parametrize("index", range(14))
def test_second_derivatives(ops, index):
    name, args = samples(torch.float64, grad=True)[index]
    assert gradgradcheck(operator(name), args)


def test_forward_mode_derivatives_of_our_kernels(ops):
    """In float32, where the kernel is ours; with gradients off, too, and through the package's function."""
    x, tangent = randn(2, 3, 8), randn(2, 3, 8, seed=1)
    _, want = torch.func.jvp(lambda x: x[..., :4] * F.gelu(x[..., 4:]), (x,), (tangent,))
    for grad in (True, False):
        for call in (ops.geglu, operator("geglu")):
            with torch.set_grad_enabled(grad), forward_ad.dual_level():
                got = forward_ad.unpack_dual(call(forward_ad.make_dual(x, tangent))).tangent
                torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.func.jvp(ops.geglu, (x,), (tangent,))[1], want)


def test_second_derivatives_of_our_kernels(ops):
    x = randn(2, 3, 8).requires_grad_()
    outer = []
    for call in (ops.geglu, lambda x: x[..., :4] * F.gelu(x[..., 4:])):
        (first,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        outer.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*outer, rtol=1e-4, atol=1e-5)


def test_the_same_tensor_as_several_operands(ops):
    q = randn(1, 2, 5, 4, dtype=torch.float64).requires_grad_()
    for graph in (False, True):
        got, want = (torch.autograd.grad(f(q, q, q).square().sum(), q, create_graph=graph)[0]
                     for f in (ops.attention, lambda *a: attention_double(*a)))
        torch.testing.assert_close(got, want)


def test_autocast(ops):
    """Products run in autocast's type, norms in float32, as PyTorch's own; operands may be of several types."""
    x, weight, bias = randn(2, 3, 8), randn(5, 8, seed=1).bfloat16(), randn(5, seed=2)
    with torch.autocast("cpu", torch.bfloat16):
        made = ops.linear_epilogue(x, weight, bias, residual=randn(2, 3, 5, seed=3))
        assert made.dtype == F.linear(x, weight).dtype == torch.bfloat16
        assert_near(made, F.linear(x.double(), weight.double(), bias.double()) + randn(2, 3, 5, seed=3).double(), terms=8, scale=8.0)
        y = ops.conv2d_epilogue(randn(1, 4, 5, 5), randn(4, 4, 3, 3, seed=1), padding=1, channel_shift=randn(1, 4, seed=2).bfloat16(),
                                residual=randn(1, 4, 5, 5, seed=3))
        q = randn(1, 2, 5, 8)
        assert y.dtype == ops.attention(q, q.bfloat16(), q).dtype == torch.bfloat16
        norm = ops.group_norm_silu(y, 2, torch.ones(4), torch.zeros(4))
        assert norm.dtype == torch.float32  # as PyTorch's autocast has it on GPUs
        assert ops.layer_norm_residual(x.bfloat16(), x, torch.ones(8), torch.zeros(8))[0].dtype == torch.float32
        assert ops.linear_epilogue(x.double(), weight.double()).dtype == torch.float64
    leaf = randn(2, 8).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        ops.linear_epilogue(leaf, weight).float().sum().backward()
    assert leaf.grad.dtype == torch.float32 and leaf.grad.abs().sum() > 0


@pytest.mark.bad_input
def test_operands_of_several_devices(ops):
    """A tensor without memory beside one with it would be answered by the function that only knows sizes."""
    for name, args in samples(torch.float32):
        tensors = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor)]
        for meta in tensors[1:]:
            mixed = [x.to("meta") if i == meta else x for i, x in enumerate(args)]
            with pytest.raises(RuntimeError, match="meta|another device"):
                operator(name)(*mixed)
        if len(tensors) > 1:
            with pytest.raises(RuntimeError, match="cpu|another device"):
                operator(name)(*[x.to("meta") if i == 0 else x for i, x in enumerate(args)])
        made = operator(name)(*(x.to("meta") if isinstance(x, torch.Tensor) else x for x in args))
        assert (made[0] if isinstance(made, tuple) else made).device.type == "meta"


@pytest.mark.bad_input
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_masks_of_integers(ops, dtype, device):
    q = randn(1, 2, 3, 8).to(device)
    for mask in (torch.ones(3, 3, dtype=dtype, device=device), torch.zeros(1, 1, 1, 3, dtype=dtype, device=device)):
        with pytest.raises(RuntimeError, match="expected bool"):
            ops.attention(q, q, q, mask=mask)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16, torch.float64])
def test_masks_that_are_taken(ops, dtype):
    q, k, v = (packed_heads(1, 2, 6, 8, torch.float32, seed) for seed in range(3))
    mask = torch.ones(6, 6, dtype=torch.bool).tril() if dtype == torch.bool else randn(6, 6, seed=4).to(dtype)
    assert_near(ops.attention(q, k, v, mask=mask), attention_double(q, k, v, mask), terms=14, scale=3.0)


@pytest.mark.parametrize("step", [2 ** 31 + 8, 2 ** 32 + 8])
def test_rows_far_apart(ops, tmp_path, step):
    """Strides that 32 bits do not hold: a sparse file is the memory."""
    file = torch.from_file(str(tmp_path / "rows"), shared=True, size=step + 64, dtype=torch.bfloat16)
    rows = file.as_strided((2, 32), (step, 1))
    rows.copy_(randn(2, 32).bfloat16())
    weight = randn(8, 32, seed=1).bfloat16()
    assert_near(ops.linear_epilogue(rows, weight), F.linear(rows.double(), weight.double()), terms=32, scale=6.0)
    assert_near(ops.geglu(rows), rows.double()[:, :16] * F.gelu(rows.double()[:, 16:]), scale=3.0)
    assert_near(ops.layer_norm(rows, torch.ones(32), torch.zeros(32)), F.layer_norm(rows.double(), (32,)), terms=32, scale=3.0)
    q = file.as_strided((1, 2, 2, 16), (0, 16, step, 1))  # heads beside one another, tokens far apart
    assert_near(ops.attention(q, q, q), attention_double(q, q, q), terms=18, scale=3.0)
    q = file.as_strided((1, 2, 2, 16), (0, step, 16, 1))  # heads far apart
    assert_near(ops.attention(q, q, q), attention_double(q, q, q), terms=18, scale=3.0)
    image = file.as_strided((1, 4, 2, 4), (0, 1, step, 4))  # [N,C,H,W]: rows of an image far apart
    assert_near(ops.conv2d_epilogue(image, randn(8, 4, 1, 1, seed=2).bfloat16()),
                F.conv2d(image.double(), randn(8, 4, 1, 1, seed=2).bfloat16().double()), terms=4, scale=4.0)
