"""rocm_sd_ops.run_op: any op by its name and a problem's text, against PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch_ops import load_package


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("eight", [torch.int8, torch.float8_e4m3fn])
def test_dequantizes(ops, dtype, eight):
    torch.manual_seed(3)
    values = (torch.randn(37, 53) * 40).clamp(-127, 127).to(eight)
    scales = torch.rand(37) + 0.5
    names = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int8: "i8", torch.float8_e4m3fn: "f8e4m3"}
    got = ops.run_op("dequantize", f"{names[eight]} to {names[dtype]} [37,53]", values, scales)
    assert got.dtype == dtype and got.shape == (37, 53)
    assert torch.equal(got, (values.float() * scales[:, None]).to(dtype))


def test_ops_with_a_struct_of_their_own(ops):
    torch.manual_seed(4)
    x, weight, bias, residual = torch.randn(6, 32), torch.randn(16, 32), torch.randn(16), torch.randn(6, 16)
    got = ops.run_op("linear", "6x16x32 f32 bias residual silu", x, weight, bias, residual)
    want = torch.nn.functional.silu(x.double() @ weight.double().T + bias.double() + residual.double())
    # Sums of 34 terms in float; silu is nowhere steeper than 1.1.
    assert (got.double() - want).abs().max() < 1.1 * 34 * 2**-24 * (x.abs() @ weight.abs().T + 8).max()


def test_strided_inputs_are_read_by_their_elements(ops):
    values = torch.arange(12, dtype=torch.int8).reshape(4, 3).T  # [3,4], not contiguous
    got = ops.run_op("dequantize", "i8 to f32 [3,4]", values, torch.ones(3))
    assert torch.equal(got, values.float())


def test_says_what_is_wrong(ops):
    values, scales = torch.zeros(3, 4, dtype=torch.int8), torch.ones(3)
    for arguments, message in [(("no_op", "f32 [3]", values), "no_op"), (("dequantize", "i8 to f32", values, scales), "expected"),
                               (("dequantize", "i8 to f32 [3,4]", values), "scales is missing"),
                               (("dequantize", "i8 to f32 [3,4]", values, scales, scales), "takes 2 inputs, got 3"),
                               (("dequantize", "i8 to f32 [3,4]", values.float(), scales), "values .*expected i8"),
                               (("dequantize", "i8 to f32 [3,5]", values, scales), "expected i8"),
                               (("linear", "4x8x8 f32 by i8", torch.zeros(4, 8), torch.zeros(8, 8)), "8 bits")]:
        with pytest.raises(RuntimeError, match=message):
            ops.run_op(*arguments)


def test_empty_and_compiled(ops):
    assert ops.run_op("dequantize", "i8 to bf16 [0,4]", torch.zeros(0, 4, dtype=torch.int8), torch.ones(0)).shape == (0, 4)
    values, scales = torch.ones(3, 4, dtype=torch.int8), torch.full((3,), 2.0)

    @torch.compile(backend="eager", fullgraph=True)
    def twice(v, s):
        return ops.run_op("dequantize", "i8 to f32 [3,4]", v, s) * 2

    assert torch.equal(twice(values, scales), torch.full((3, 4), 4.0))
