"""rocm_sd::attention and vae_attention on the CPU: against PyTorch in float64, at every head_dim, strides, masks."""

from __future__ import annotations

import pytest
import torch
from torch_ops import assert_near, attention_double, channels_last, load_package, packed_heads, randn

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


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
