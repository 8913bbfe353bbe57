"""The drop-in calls, the SDPA route, the backend object and the profile."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from front_ends import exact
from torch_ops import assert_near, load_package, randn


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


def heads_first(*tensors):
    return [x.transpose(1, 2) for x in tensors]


@pytest.mark.parametrize("queries,keys", [(7, 7), (5, 9)])
def test_flash_attn(ops, queries, keys):
    f = ops.compat.flash_attn.flash_attn_func
    q, k, v = randn(2, queries, 4, 16), randn(2, keys, 2, 16, seed=1), randn(2, keys, 2, 16, seed=2)
    wide = [x.repeat_interleave(2, dim=2) for x in (k, v)]
    near = torch.arange(keys)[None] - torch.arange(queries)[:, None] - (keys - queries)
    for kwargs, mask in (({}, None), ({"causal": True}, near <= 0), ({"window_size": (2, 1)}, (near >= -2) & (near <= 1)),
                         ({"causal": True, "window_size": (1, -1)}, (near >= -1) & (near <= 0))):
        got = f(q, k, v, softmax_scale=0.3, **kwargs)
        assert got.shape == q.shape
        assert_near(got.transpose(1, 2), exact(*heads_first(q, *wide), mask, 0.3), terms=keys + 16)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    bias = -slopes[:, None, None] * near.abs()
    assert_near(f(q, k, v, alibi_slopes=slopes).transpose(1, 2), exact(*heads_first(q, *wide), bias), terms=keys + 16)
    with pytest.raises(NotImplementedError):
        f(q, k, v, softcap=3.0)
    with pytest.raises(ValueError):
        f(q[:, :, :3], k, v)


def test_xformers(ops):
    x = ops.compat.xformers
    q, k, v = randn(2, 5, 3, 8), randn(2, 6, 3, 8, seed=1), randn(2, 6, 3, 8, seed=2)
    assert_near(x.memory_efficient_attention(q, k, v).transpose(1, 2), exact(*heads_first(q, k, v)), terms=14)
    padded = randn(2, 3, 5, 8, seed=3)[..., :6]  # as xformers wants its biases: a view of a padded buffer
    got = x.memory_efficient_attention(q, k, v, attn_bias=padded, scale=0.5)
    assert_near(got.transpose(1, 2), exact(*heads_first(q, k, v), padded, 0.5), terms=14)
    flat = [t[:, :, 0] for t in (q, k, v)]
    got = x.memory_efficient_attention(*flat, attn_bias=padded[:, 0])
    assert_near(got.unsqueeze(1), exact(*(t.unsqueeze(1) for t in flat), padded[:, :1]), terms=14)
    lower = torch.ones(5, 6, dtype=torch.bool).tril()
    got = x.memory_efficient_attention(q, k, v, attn_bias=x.LowerTriangularMask())
    assert_near(got.transpose(1, 2), exact(*heads_first(q, k, v), lower), terms=14)
    with pytest.raises(NotImplementedError):
        x.memory_efficient_attention(q, k, v, attn_bias="lower")


def test_sage(ops):
    f = ops.compat.sage.sageattn
    q, k, v = (randn(1, 2, 6, 8, seed=i) for i in range(3))
    mask = randn(6, 6, seed=4) > 0
    assert_near(f(q, k, v, attn_mask=mask, smooth_k=True), exact(q, k, v, mask), terms=14)
    got = f(*heads_first(q, k, v), tensor_layout="NHD", is_causal=True)
    assert_near(got.transpose(1, 2), exact(q, k, v, torch.ones(6, 6, dtype=torch.bool).tril()), terms=14)
    with pytest.raises(ValueError):
        f(q, k, v, tensor_layout="DNH")


def test_sdpa_route(ops):
    original, called = F.scaled_dot_product_attention, []
    q, k, v = (randn(1, 4, 6, 8, seed=i) for i in range(3))
    real = ops.ops.attention
    ops.ops.attention = lambda *a, **kw: called.append(1) or real(*a, **kw)
    try:
        with ops.sdpa():
            assert F.scaled_dot_product_attention is ops.scaled_dot_product_attention
            assert_near(F.scaled_dot_product_attention(q, k, v), exact(q, k, v), terms=14)
            assert_near(F.scaled_dot_product_attention(q[0], k[0], v[0])[None], exact(q, k, v), terms=14)
            grouped = F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)
            assert_near(grouped, exact(q, *(x[:, :2].repeat_interleave(2, 1) for x in (k, v))), terms=14)
            assert len(called) == 3
            with ops.sdpa(enabled=False):
                assert F.scaled_dot_product_attention is original
            F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)  # left to PyTorch
            F.scaled_dot_product_attention(q, k[:, :1], v[:, :1])  # broadcast
            assert len(called) == 3
    finally:
        ops.ops.attention = real
    assert F.scaled_dot_product_attention is original


def test_diffusers_backend(ops):
    from diffusers.models.attention_dispatch import AttentionBackendName, dispatch_attention_fn

    ops.register_attention_backend()
    ops.register_attention_backend()
    q, k, v = (randn(1, 6, 2, 8, seed=i) for i in range(3))
    got = dispatch_attention_fn(q, k, v, backend=AttentionBackendName("rocm_sd"))
    assert_near(got.transpose(1, 2), exact(*heads_first(q, k, v)), terms=14)


def test_backend_and_profile(ops, tmp_path):
    backend = ops.ROCmSDBackend("cpu")
    can = backend.capabilities()
    assert can.kernels and torch.bfloat16 in can.dtypes and "cpu" in repr(backend)
    assert backend.tuning is ops.tuning
    q = randn(1, 2, 9, 16)
    with backend.profile() as profile, torch.no_grad():
        ops.attention(q, q, q)
    assert [r["calls"] for r in profile.rows(ours_only=True) if r["name"] == "rocm_sd::attention"] == [1]
    assert "rocm_sd::attention" in profile.table()
    profile.export_chrome_trace(tmp_path / "trace.json")
    assert any(e.get("name") == "rocm_sd::attention" for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"])


def test_kernels_can_be_switched_off(ops):
    q = randn(1, 2, 9, 16)
    assert ops.set_kernels_enabled(False) is True
    try:
        assert ops.explain("attention", q, q, q).kernel == "pytorch"
        assert_near(ops.attention(q, q, q), exact(q, q, q), terms=25)
    finally:
        assert ops.set_kernels_enabled(True) is False
    assert ops.explain("attention", q, q, q).kernel != "pytorch"
