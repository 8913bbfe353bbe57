"""tools/report/model_costs.py plays grids that fill every compute unit alike."""

import math
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/report"))

import model_costs  # noqa: E402

KERNELS = [
    model_costs.Kernel("linear", "128x160x32", "gemm_f16_128x160x32", 128, 160, 32, (640, 1920)),
    model_costs.Kernel("geglu", "64x64x64", "geglu_f16_64x64x64", 64, 64, 64, (640, 1920)),
    model_costs.Kernel("conv2d", "256x16x32/1", "conv_f16_256x16x32", 256, 16, 32, (64, 256)),
    model_costs.Kernel("conv2d", "winograd", "conv_winograd_f16", 128, 64, 32, (128, 512)),
    model_costs.Kernel("attention", "flash", "flash_f16_d40_q16_k64_w8_s2", 128, 40, 64, (512, 2048)),
    model_costs.Kernel("attention", "flash_large_d", "flash_large_d_f16_d512", 32, 512, 128, (512, 2048)),
]


def workgroups(kernel, problem):
    """By the problem's text alone, and the depth of its main loop in steps."""
    numbers = [int(n) for n in re.findall(r"\d+", problem.replace("f16", ""))]
    if kernel.op == "attention":
        batch, heads, queries, keys, head_dim = numbers[:5]
        assert head_dim == kernel.columns
        return batch * heads * math.ceil(queries / kernel.rows), math.ceil(keys / kernel.step)
    if problem.startswith("linear"):
        rows, columns, depth = numbers[:3]
    else:
        assert problem.startswith("conv2d ")
        batch, height, width, depth, columns = numbers[1:6] if numbers[0] == 2 else numbers[:5]
        rows, depth = batch * height * width, depth * (1 if kernel.choice == "winograd" else 9)
    return math.ceil(rows / kernel.rows) * math.ceil(columns / kernel.columns), math.ceil(depth / kernel.step)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("units", [16, 20, 30, 32, 48, 104, 304])
@pytest.mark.parametrize("each", [1, 2, 3, 8])
def test_every_compute_unit_has_as_many(kernel, units, each):
    for depth in kernel.depths:
        groups, steps = workgroups(kernel, kernel.problem(each * units, depth))
        assert math.ceil(groups / units) == each
        assert steps == kernel.steps(depth)
