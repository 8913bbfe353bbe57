"""What torch.ops.rocm_sd owes PyTorch: opcheck, gradients, torch.compile, empty tensors, errors for wrong operands, threads; and what
our kernels decline goes to PyTorch and is told."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck
from torch_ops import assert_near, attention_double, load_package, packed_heads, randn

pytestmark = pytest.mark.in_python

CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


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


@pytest.mark.bad_input
def test_what_pytorch_refuses_too_says_both_reasons(ops):
    """Integers, say: ours decline them, and PyTorch's own answer reaches the caller (its words from 2.13 on)."""
    says = "not implemented for" if torch.__version__ >= (2, 13) else "PyTorch says why"
    for call in (lambda: ops.layer_norm(torch.ones(2, 3, dtype=torch.int32)), lambda: ops.geglu(torch.ones(2, 4, dtype=torch.bool))):
        with pytest.raises(RuntimeError, match=r"rocm_sd::\w+ (Int|Bool)\[2,[34]\].*our kernels take float32.*" + says):
            call()
    with pytest.raises(ValueError, match="'atention': expected one of attention, "):
        ops.explain("atention", randn(1, 1, 2, 4))


@pytest.mark.bad_input
@pytest.mark.parametrize("grad", [True, False])
def test_no_memory_is_pytorchs_error(ops, grad):
    """Front ends go on in tiles where they meet it."""
    with torch.set_grad_enabled(grad), pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        ops.geglu(torch.empty(1).expand(1, 2 ** 43))


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
