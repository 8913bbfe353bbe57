"""One step of full-size models against Diffusers in fp32: text encoders, UNet with guidance and VAE in their real shapes.

Weights are random in the real shapes, stored as fp16 and computed in fp32 by both. `make test-full` runs this; SDXL needs
about 16 GB of memory, which is why the oracle runs in a process of its own.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench_cpu import Bench, distance
from pictures import read_picture

pytestmark = pytest.mark.full


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_one_step(build_dir, program, tmp_path, kind):
    program("rocm-sd")
    bench = Bench(build_dir, tmp_path, kind, steps=1)
    bench.make_model()
    want = bench.torch("f32", 512)
    assert read_picture(want["image"]).std() > 5, "the oracle's picture is flat: this would prove nothing"
    got = bench.ours("f32", 512)
    psnr = distance(got["image"], want["image"])
    worst = np.abs(read_picture(got["image"]).astype(int) - read_picture(want["image"]).astype(int)).max()
    print(f"{kind}: {psnr:.1f} dB, worst pixel off by {worst}; step {got['step']:.1f} s, Diffusers {want['step']:.1f} s")
    assert psnr >= 60
