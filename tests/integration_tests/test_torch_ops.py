"""torch.ops.rocm_sd on the CPU: against PyTorch in float64, at odd shapes and strides, under opcheck, gradcheck and
torch.compile; wrong operands are errors; what our kernels decline goes to PyTorch and is told."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck
from torch_ops import assert_near, load_package, randn

CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def packed_heads(b: int, h: int, n: int, d: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """[B,H,N,D] as a projection leaves it."""
    return randn(b, n, h * d, dtype=dtype, seed=seed).view(b, n, h, d).transpose(1, 2)


def attention_double(q, k, v, mask=None, scale=None, causal=False):
    scores = q.double() @ k.double().transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask.double()
    return scores.softmax(-1).nan_to_num(0) @ v.double()


# Every head_dim of Stable Diffusion with its key lengths, reduced in queries: SD1 (40, 80, 160), SD2 and SDXL (64), the
# VAE (512), newer transformers (128), and odd ones.
ATTENTION = [(2, 8, 96, 77, 40), (1, 2, 130, 130, 40), (2, 2, 64, 77, 80), (1, 2, 16, 16, 160), (2, 3, 65, 77, 64),
             (1, 1, 100, 100, 512), (1, 2, 33, 154, 128), (1, 1, 1, 1, 8), (3, 2, 5, 231, 20)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b,h,n,m,d", ATTENTION)
def test_attention(ops, b, h, n, m, d, dtype):
    q, k, v = (packed_heads(b, h, length, d, dtype, seed) for seed, length in ((1, n), (2, m), (3, m)))
    y = ops.attention(q, k, v)
    assert y.dtype == dtype and y.transpose(1, 2).is_contiguous()
    assert_near(y, attention_double(q, k, v), terms=m + d)


def test_attention_takes_any_strides(ops):
    b, h, n, d = 2, 3, 37, 40
    qkv = randn(b, n, 3, h, d, seed=4)
    thirds = [qkv[:, :, i].transpose(1, 2) for i in range(3)]  # of one packed product
    dense = [x.contiguous() for x in thirds]  # [B,H,N,D] in memory
    every_second = [randn(b, h, 2 * n, d, seed=i)[:, :, ::2] for i in range(3)]
    scattered = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in thirds]  # channels not innermost
    expanded = [thirds[0], thirds[1][:1].expand(b, h, n, d), thirds[2][:, :1].expand(b, h, n, d)]
    for q, k, v in (thirds, dense, every_second, scattered, expanded, [thirds[0], dense[1], scattered[2]]):
        assert_near(ops.attention(q, k, v), attention_double(q, k, v), terms=n + d)


@pytest.mark.parametrize("shape", [(2, 3, 9, 11), (1, 1, 9, 11), (2, 1, 1, 11), (9, 11), (1, 3, 9, 1), (3, 1, 11)])
@pytest.mark.parametrize("kind", ["bool", "float32", "bfloat16", "expanded"])
def test_attention_masks(ops, shape, kind):
    q, k, v = (packed_heads(2, 3, length, 16, torch.float32, seed) for seed, length in ((1, 9), (2, 11), (3, 11)))
    mask = randn(*shape, seed=8, dtype=torch.bfloat16 if kind == "bfloat16" else torch.float32)
    if kind == "bool":
        mask = mask > 0
    if kind == "expanded":
        mask = mask.expand(2, 3, 9, 11)
    assert_near(ops.attention(q, k, v, mask=mask), attention_double(q, k, v, mask), terms=27, scale=2)
    folded = [x.contiguous() for x in (q, k, v)]
    assert_near(ops.attention(*folded, mask=mask), attention_double(q, k, v, mask), terms=27, scale=2)


def test_attention_causal_scale_and_hidden_rows(ops):
    q, k, v = (packed_heads(1, 2, 19, 24, torch.float32, seed) for seed in range(3))
    assert_near(ops.attention(q, k, v, causal=True, scale=0.3), attention_double(q, k, v, None, 0.3, True), terms=43)
    mask = torch.ones(19, 19, dtype=torch.bool)
    mask[4] = False
    assert ops.attention(q, k, v, mask=mask)[:, :, 4].abs().max() == 0
    both = ops.attention(q, k, v, mask=mask, causal=True)
    assert_near(both, attention_double(q, k, v, mask, None, True), terms=43)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("last", [True, False])
def test_vae_attention(ops, dtype, last):
    q, k, v = (randn(2, 48, 5, 7, dtype=dtype, seed=seed) for seed in range(3))
    if last:
        q, k, v = map(channels_last, (q, k, v))
    y = ops.vae_attention(q, k, v)
    assert y.is_contiguous(memory_format=torch.channels_last)
    tokens = [x.flatten(2).transpose(1, 2).unsqueeze(1) for x in (q, k, v)]
    want = attention_double(*tokens)[:, 0].transpose(1, 2).reshape(q.shape)
    assert_near(y, want, terms=83)


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


def samples(dtype: torch.dtype, grad: bool = False):
    """(operator, arguments) for each operator, small."""
    def t(*shape, seed=0):
        return randn(*shape, dtype=dtype, seed=seed).requires_grad_(grad)

    return [
        ("attention", (t(1, 2, 3, 4), t(1, 2, 5, 4, seed=1), t(1, 2, 5, 4, seed=2), t(3, 5, seed=3).detach(), 0.4, False)),
        ("attention", (t(1, 2, 3, 4), t(1, 2, 3, 4, seed=1), t(1, 2, 3, 4, seed=2), None, None, True)),
        ("vae_attention", (t(1, 4, 2, 3), t(1, 4, 2, 3, seed=1), t(1, 4, 2, 3, seed=2))),
        ("group_norm_silu", (t(2, 4, 3, 2), 3, t(6, seed=1), t(6, seed=2), 1e-3, True, t(2, 2, 3, 2, seed=3))),
        ("group_norm_silu", (t(2, 4, 3, 2), 2, t(4, seed=1), t(4, seed=2), 1e-3, False)),
        ("layer_norm", (t(2, 3, 6), t(6, seed=1), t(6, seed=2))),
        ("layer_norm_residual", (t(2, 6), t(2, 6, seed=1), t(6, seed=2), t(6, seed=3))),
        ("geglu", (t(2, 3, 8),)),
        ("linear_epilogue", (t(2, 3, 5), t(4, 5, seed=1), t(4, seed=2), t(2, 3, 4, seed=3), "silu")),
        ("linear_epilogue", (t(2, 5), t(4, 5, seed=1), t(4, seed=2), None, "none", True)),
        ("conv2d_epilogue", (t(1, 2, 4, 5), t(3, 4, 3, 3, seed=1), t(3, seed=2), 1, [1, 1, 1, 1], t(1, 3, seed=3),
                             t(1, 3, 4, 5, seed=4), "gelu", t(1, 2, 4, 5, seed=5))),
        ("conv2d_epilogue", (t(1, 2, 4, 4), t(3, 2, 3, 3, seed=1), None, 2, [0, 0, 1, 1])),
        ("upsample2x_conv", (t(1, 2, 3, 3), t(2, 2, 3, 3, seed=1), t(2, seed=2))),
        ("scheduler_step", (t(1, 2, 3), t(2, 2, 3, seed=1), 0.9, -0.4, 5.0, t(1, 2, 3, seed=2), 0.1)),
    ]


@pytest.mark.parametrize("index", range(14))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # ours, and PyTorch's through the fallback
def test_opcheck(ops, index, dtype):
    name, args = samples(dtype, grad=dtype == torch.float32)[index]
    torch.library.opcheck(getattr(torch.ops.rocm_sd, name).default, args, test_utils=CHECKS)


@pytest.mark.parametrize("index", range(14))
def test_gradcheck(ops, index):
    name, args = samples(torch.float64, grad=True)[index]
    assert gradcheck(getattr(torch.ops.rocm_sd, name), args)


def test_gradients_of_our_kernels_are_pytorchs(ops):
    from rocm_sd_ops._register import PLAIN

    for name, args in samples(torch.float32, grad=True):
        leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
        plain, count = PLAIN[name]
        outputs = [f(*a) for f, a in ((getattr(torch.ops.rocm_sd, name), args), (plain, args[:count]))]
        totals = [sum((y * y).sum() for y in (o if isinstance(o, tuple) else (o,))) for o in outputs]
        for ours, theirs in zip(*(torch.autograd.grad(total, leaves) for total in totals)):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def block(ops, x, shift, gain, offset, filter, weight, wide):
    """A small block of a UNet made of the operators alone."""
    y = ops.group_norm_silu(x, 4, gain, offset)
    y = ops.conv2d_epilogue(y, filter, padding=1, channel_shift=shift, residual=x)
    tokens = y.permute(0, 2, 3, 1).flatten(1, 2)
    q = ops.linear_epilogue(tokens, weight, residual=tokens).unflatten(-1, (2, 8)).transpose(1, 2)
    y = ops.attention(q, q, q).transpose(1, 2).flatten(2)
    y, total = ops.layer_norm_residual(y, tokens, gain, offset)
    return ops.linear_epilogue(y, wide, geglu=True) + total


def block_arguments():
    return [randn(2, 16, 6, 6), randn(2, 16, seed=1), randn(16, seed=2), randn(16, seed=3), randn(16, 16, 3, 3, seed=4),
            randn(16, 16, seed=5), randn(32, 16, seed=6)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compile_without_graph_breaks(ops, backend):
    torch._dynamo.reset()
    args = block_arguments()
    compiled = torch.compile(lambda *a: block(ops, *a), fullgraph=True, backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), block(ops, *args), rtol=1e-5, atol=1e-5)


def test_compile_with_gradients(ops):
    torch._dynamo.reset()
    leaves = [x.requires_grad_() for x in block_arguments()]
    compiled = torch.compile(lambda *a: block(ops, *a), fullgraph=True, backend="aot_eager")
    want = torch.autograd.grad(block(ops, *leaves).square().sum(), leaves)
    got = torch.autograd.grad(compiled(*leaves).square().sum(), leaves)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_dynamic_shapes_compile_once(ops):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(lambda x, w: ops.linear_epilogue(x, w, act="silu"), fullgraph=True, dynamic=True,
                             backend=counter)
    weight = randn(8, 16)
    for rows in (5, 9, 33):
        x = randn(rows, 16)
        torch.testing.assert_close(compiled(x, weight), F.silu(F.linear(x, weight)), rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 1


def test_empty_tensors(ops):
    assert ops.attention(*(torch.empty(0, 2, 3, 4) for _ in range(3))).shape == (0, 2, 3, 4)
    assert ops.attention(torch.empty(1, 2, 0, 4), torch.empty(1, 2, 5, 4), torch.empty(1, 2, 5, 4)).shape == (1, 2, 0, 4)
    assert ops.group_norm_silu(torch.empty(0, 4, 2, 2), 2, torch.ones(4), torch.ones(4)).shape == (0, 4, 2, 2)
    assert ops.linear_epilogue(torch.empty(0, 5), torch.empty(3, 5)).shape == (0, 3)
    assert ops.conv2d_epilogue(torch.empty(0, 2, 4, 4), torch.empty(3, 2, 3, 3), padding=1).shape == (0, 3, 4, 4)
    assert ops.geglu(torch.empty(2, 0)).shape == (2, 0)
    assert ops.layer_norm(torch.empty(0, 3), torch.ones(3), torch.ones(3)).shape == (0, 3)


@pytest.mark.bad_input
def test_wrong_operands_are_errors(ops):
    x = randn(1, 4, 4, 4)
    bad = [
        lambda: ops.attention(randn(1, 2, 3, 4), randn(1, 2, 3, 5), randn(1, 2, 3, 4)),
        lambda: ops.attention(randn(2, 3, 4), randn(2, 3, 4), randn(2, 3, 4)),
        lambda: ops.attention(randn(1, 2, 3, 4), randn(1, 2, 3, 4).bfloat16(), randn(1, 2, 3, 4)),
        lambda: ops.attention(*(randn(1, 2, 3, 4),) * 3, mask=randn(3, 4)),
        lambda: ops.group_norm_silu(x, 3, torch.ones(4), torch.ones(4)),
        lambda: ops.group_norm_silu(x, 0, torch.ones(4), torch.ones(4)),
        lambda: ops.group_norm_silu(x, 2, torch.ones(5), torch.ones(4)),
        lambda: ops.group_norm_silu(x, 2, torch.ones(4), torch.ones(4), x2=randn(1, 4, 4, 5)),
        lambda: ops.layer_norm(x, torch.ones(3), torch.ones(3)),
        lambda: ops.layer_norm_residual(x, randn(4, 4), torch.ones(4), torch.ones(4)),
        lambda: ops.geglu(randn(3, 5)),
        lambda: ops.linear_epilogue(randn(3, 5), randn(4, 6)),
        lambda: ops.linear_epilogue(randn(3, 5), randn(4, 5), act="tanh"),
        lambda: ops.linear_epilogue(randn(3, 5), randn(3, 5), geglu=True),
        lambda: ops.linear_epilogue(randn(3, 5), randn(4, 5), residual=randn(4, 3)),
        lambda: ops.conv2d_epilogue(x, randn(3, 5, 3, 3)),
        lambda: ops.conv2d_epilogue(x, randn(3, 4, 3, 3), stride=0),
        lambda: ops.conv2d_epilogue(x, randn(3, 4, 5, 5)),
        lambda: ops.conv2d_epilogue(x, randn(3, 4, 3, 3), padding=(1, 2, 3)),
        lambda: ops.conv2d_epilogue(x, randn(3, 4, 3, 3), padding=-1),
        lambda: ops.conv2d_epilogue(x, randn(3, 4, 3, 3), channel_shift=randn(1, 4)),
        lambda: ops.conv2d_epilogue(x, randn(3, 4, 3, 3).double()),
        lambda: ops.upsample2x_conv(randn(4, 4), randn(3, 4, 3, 3)),
        lambda: ops.scheduler_step(x, randn(3, 4, 4, 4), 1.0, 1.0),
        lambda: ops.scheduler_step(x, x, 1.0, 1.0, noise=randn(2, 2)),
    ]
    for number, call in enumerate(bad):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            print(f"operand {number}:", call())


def test_explain_names_the_kernel_and_computes_nothing(ops):
    q = packed_heads(1, 2, 9, 16, torch.float32, 1)
    told = ops.explain("attention", q, q, q)
    assert told.kernel in ("host", "onednn", "host_bf16") and "gpu: runs on a GPU only" in str(told)
    told = ops.explain("conv2d_epilogue", randn(1, 32, 8, 8), randn(32, 32, 3, 3))
    assert told.kernel == "tiled"
    told = ops.explain("attention", q.double(), q.double(), q.double())
    assert told.kernel == "pytorch" and "float32, float16 and bfloat16" in str(told)
    with pytest.raises(RuntimeError):
        ops.explain("geglu", randn(3, 5))
    assert_near(ops.attention(q, q, q), attention_double(q, q, q), terms=25)  # explaining has ended


def test_fallbacks_are_told_once(ops, capfd):
    q = randn(1, 2, 3, 14).half()
    for _ in range(3):
        y = ops.attention(q, q, q)
    assert y.dtype == torch.float16
    assert_near(y, attention_double(q, q, q), terms=17)
    said = [line for line in capfd.readouterr().err.splitlines() if "f16[1,2,3,14]" in line]
    assert len(said) == 1 and "PyTorch's own" in said[0] and "float16 on the CPU" in said[0]
    assert any("f16[1,2,3,14]" in line for line in ops.fallbacks())


def test_threads(ops):
    """Several threads on one pack and on operators of their own."""
    args, pack, filter = block_arguments(), ops.Pack(), randn(16, 16, 3, 3, seed=9)
    want = block(ops, *args)
    conv = ops.conv2d_epilogue(args[0], filter, padding=1)
    wrong = []

    def work():
        for _ in range(5):
            same = ops.conv2d_epilogue(args[0], filter, padding=1, pack=pack.id)
            if not (torch.allclose(block(ops, *args), want, atol=1e-5) and torch.allclose(same, conv, atol=1e-3)):
                wrong.append(threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
