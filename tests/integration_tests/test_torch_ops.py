"""torch.ops.rocm_sd's norms, products, convolutions and steps on the CPU: against PyTorch in float64, at odd shapes and strides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_ops import assert_near, channels_last, load_package, randn

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("n,c,c2,h,w", [(2, 64, 0, 8, 8), (2, 64, 0, 1, 1), (2, 96, 32, 5, 3), (1, 320, 640, 4, 4)])
def test_group_norm_silu(ops, n, c, c2, h, w, dtype, last):
    x, x2 = randn(n, c, h, w, dtype=dtype, seed=1), randn(n, c2, h, w, dtype=dtype, seed=2) if c2 else None
    weight, bias = randn(c + c2, seed=3) + 1, randn(c + c2, seed=4)
    if last:
        x, x2 = channels_last(x), x2 if x2 is None else channels_last(x2)
    whole = (x if x2 is None else torch.cat([x, x2], 1)).double()
    for silu, parameters in ((True, (weight, bias)), (False, (weight.to(dtype), bias.to(dtype)))):
        want = F.group_norm(whole, 32, *(p.double() for p in parameters), 1e-5)
        y = ops.group_norm_silu(x, 32, *parameters, 1e-5, silu=silu, x2=x2)
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert_near(y, F.silu(want) if silu else want, terms=(c + c2) // 32 * h * w)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 77, 768), (3, 5), (1, 1), (4, 9, 321)])
def test_layer_norm(ops, dtype, shape):
    x, residual = randn(*shape, dtype=dtype, seed=1), randn(*shape, dtype=dtype, seed=2)
    weight, bias = randn(shape[-1], seed=3) + 1, randn(shape[-1], seed=4)

    def want(values):
        return F.layer_norm(values.double(), shape[-1:], weight.double(), bias.double(), 1e-5)

    if shape[-1] > 1:
        assert_near(ops.layer_norm(x, weight, bias), want(x), terms=shape[-1])
    y, total = ops.layer_norm_residual(x, residual, weight, bias)
    assert_near(total, x.double() + residual.double())
    if shape[-1] > 1:
        assert_near(y, want(total), terms=shape[-1])
    strided = randn(*shape[:-1], 2 * shape[-1], dtype=dtype, seed=5)[..., ::2]
    if shape[-1] > 1:
        assert_near(ops.layer_norm(strided, weight, bias), want(strided), terms=shape[-1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_geglu(ops, dtype):
    x = randn(3, 7, 90, dtype=dtype)
    value, gate = x.double().chunk(2, -1)
    assert_near(ops.geglu(x), value * F.gelu(gate))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows,k,m", [((2, 77), 64, 96), ((5,), 320, 640), ((1, 1, 3), 17, 2), ((130,), 40, 34)])
def test_linear_epilogue(ops, rows, k, m, dtype):
    x, weight = randn(*rows, k, dtype=dtype, seed=1), randn(m, k, dtype=dtype, seed=2)
    bias, residual = randn(m, seed=3), randn(*rows, m, dtype=dtype, seed=4)
    pack = ops.Pack()
    product = F.linear(x.double(), weight.double(), bias.double())
    size = product.abs().max().item()
    for act, f in (("none", lambda y: y), ("silu", F.silu), ("gelu", F.gelu), ("relu", F.relu),
                   ("quick_gelu", lambda y: y * torch.sigmoid(1.702 * y))):
        for used in (0, pack.id):
            y = ops.linear_epilogue(x, weight, bias, residual=residual, act=act, pack=used)
            assert_near(y, f(product + residual.double()), terms=k, scale=size)
    assert_near(ops.linear_epilogue(x, weight), F.linear(x.double(), weight.double()), terms=k, scale=size)
    value, gate = product.chunk(2, -1)
    assert_near(ops.linear_epilogue(x, weight, bias, geglu=True), value * F.gelu(gate), terms=k, scale=size ** 2)


def test_linear_reads_strided_rows_in_place(ops):
    wide, weight = randn(4, 6, 100, seed=1), randn(8, 33, seed=2)
    for x in (wide[..., :33], wide[:, ::2, 10:43], wide[1:3, 1, 5:38], wide.transpose(0, 1)[..., 1:34]):
        assert_near(ops.linear_epilogue(x, weight, residual=None), F.linear(x.double(), weight.double()), terms=33,
                    scale=20)


CONVOLUTIONS = [  # n, c, c2, h, w, k, filter, stride, padding
    (2, 32, 0, 8, 8, 48, 3, 1, 1), (1, 4, 0, 9, 7, 32, 3, 1, 1), (1, 64, 32, 6, 6, 32, 3, 1, 1),
    (2, 32, 0, 8, 8, 32, 3, 2, 1), (1, 32, 0, 8, 8, 32, 3, 2, (0, 0, 1, 1)), (1, 96, 0, 4, 4, 32, 1, 1, 0),
    (1, 3, 0, 5, 6, 7, 3, 1, (1, 2)), (1, 320, 0, 2, 2, 4, 3, 1, 1)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n,c,c2,h,w,k,filter,stride,padding", CONVOLUTIONS)
def test_conv2d_epilogue(ops, n, c, c2, h, w, k, filter, stride, padding, dtype):
    x, x2 = randn(n, c, h, w, dtype=dtype, seed=1), randn(n, c2, h, w, dtype=dtype, seed=2) if c2 else None
    weight, bias = randn(k, c + c2, filter, filter, dtype=dtype, seed=3), randn(k, seed=4)
    whole = (x if x2 is None else torch.cat([x, x2], 1)).double()
    sides = [padding] * 4 if isinstance(padding, int) else list(padding) * (2 if len(padding) == 2 else 1)
    top, left, bottom, right = sides
    plain = F.conv2d(F.pad(whole, (left, right, top, bottom)), weight.double(), bias.double(), stride)
    shift, residual = randn(n, k, dtype=dtype, seed=5), randn(*plain.shape, dtype=dtype, seed=6)
    pack, terms, size = ops.Pack(), (c + c2) * filter ** 2, plain.abs().max().item()
    for last in (True, False):
        a, b, r = (None if t is None else channels_last(t) if last else t for t in (x, x2, residual))
        f = channels_last(weight) if last else weight
        for used in (0, pack.id, pack.id):
            y = ops.conv2d_epilogue(a, f, bias, stride=stride, padding=padding, x2=b, pack=used)
            assert y.is_contiguous(memory_format=torch.channels_last)
            assert_near(y, plain, terms=terms, scale=size)
            y = ops.conv2d_epilogue(a, f, bias, stride=stride, padding=padding, channel_shift=shift, residual=r,
                                    act="silu", x2=b, pack=used)
            want = F.silu(plain + shift.double()[:, :, None, None] + residual.double())
            assert_near(y, want, terms=terms, scale=size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_upsample2x_conv(ops, dtype):
    x, weight, bias = randn(2, 24, 5, 6, dtype=dtype), randn(16, 24, 3, 3, dtype=dtype, seed=1), randn(16, seed=2)
    want = F.conv2d(F.interpolate(x.double(), scale_factor=2), weight.double(), bias.double(), padding=1)
    pack = ops.Pack()
    for used in (0, pack.id, pack.id):
        y = ops.upsample2x_conv(channels_last(x), weight, bias, pack=used)
        # The filter's taps are summed in advance and rounded to its type.
        assert_near(y, want, terms=24 * 9, scale=4 * want.abs().max().item() if dtype == torch.bfloat16 else 1)


def test_a_pack_follows_its_weight(ops):
    x, weight, pack = randn(1, 16, 6, 6), torch.nn.Parameter(randn(8, 16, 3, 3, seed=1)), ops.Pack()
    for change in (lambda: None, lambda: weight.data.add_(1), lambda: weight.data.mul_(2)):  # the last two as LoRA merges
        change()
        y = ops.conv2d_epilogue(x, weight, padding=1, pack=pack.id)
        assert_near(y.detach(), F.conv2d(x.double(), weight.detach().double(), padding=1), terms=144, scale=30)
    other = randn(8, 16, 1, 1, seed=2)
    assert_near(ops.conv2d_epilogue(x, other, pack=pack.id), F.conv2d(x.double(), other.double()), terms=16, scale=9)
    stale = pack.id
    pack.forget()
    assert pack.id != stale
    assert_near(ops.conv2d_epilogue(x, other, pack=stale), F.conv2d(x.double(), other.double()), terms=16, scale=9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_scheduler_step(ops, dtype):
    sample, output, noise, previous = (randn(2, 4, 6, 5, dtype=dtype, seed=i) for i in range(4))
    both = torch.cat([output, noise])
    got = ops.scheduler_step(sample, output, 0.9, -0.3, noise=noise, noise_scale=0.2, previous=previous,
                             previous_scale=0.1)
    want = 0.9 * sample.double() - 0.3 * output.double() + 0.2 * noise.double() + 0.1 * previous.double()
    assert got.dtype == dtype
    assert_near(got.float() if dtype == torch.float64 else got, want, scale=4)
    got = ops.scheduler_step(sample, both, 1.0, -0.5, guidance=7.5)
    want = sample.double() - 0.5 * (output.double() + 7.5 * (noise.double() - output.double()))
    assert_near(got.float() if dtype == torch.float64 else got, want, scale=60)
