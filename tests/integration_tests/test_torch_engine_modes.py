"""The ways in which the engine's UNet runs under PyTorch give the same numbers: operator by operator, as while PyTorch records a
graph, planned once and replayed (what a GPU gets; here on the CPU), and as one operator of a compiled graph."""

from __future__ import annotations

import pytest
import torch
from test_torch_engine import _float
from test_torch_optimize import psnr, tiny_unet, unet_inputs
from torch_ops import load_package, randn

EAGER, CAPTURED, PREPARED = 1, 2, 3


@pytest.fixture(scope="module")
def ops(build_dir):
    return load_package(build_dir)


@pytest.fixture
def calls(ops):
    """call(unet) -> run(mode, inputs, same_text): the operator on a model of that module's weights."""
    from rocm_sd_ops.engine_modules import module_config, new_unet

    def of(unet):
        model = new_unet(dict(unet.state_dict()), module_config(unet))

        def run(mode, inputs, same_text=False):
            added = inputs.get("added_cond_kwargs", {})
            times = inputs["timestep"].expand(inputs["sample"].shape[0])  # one integer, seen several times
            return torch.ops.rocm_sd._engine_unet(model.id, inputs["sample"], times, inputs["encoder_hidden_states"],
                                                  added.get("text_embeds"), added.get("time_ids"), None, same_text, mode)

        return run

    return of


def other(inputs, seed):
    """Inputs of the same sizes with other values."""
    def change(key, value):
        if isinstance(value, dict):
            return {k: change(k, v) for k, v in value.items()}
        if key == "timestep":
            return torch.tensor(17 * seed)
        return randn(*value.shape, dtype=value.dtype, seed=seed + len(key))

    return {k: change(k, v) for k, v in inputs.items()}


@torch.no_grad()
@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_modes_agree(ops, calls, kind, dtype):
    unet, exact = tiny_unet(kind, dtype), tiny_unet(kind)
    run = calls(unet)
    for seed in (1, 2, 3):  # the first call plans, the second records, the third replays
        inputs = other(unet_inputs(unet, dtype), seed)
        want = run(EAGER, inputs)
        assert psnr(want, exact(**_float(inputs)).sample) >= (90 if dtype == torch.float32 else 38)
        for mode in (CAPTURED, PREPARED):
            got = run(mode, inputs)
            assert torch.equal(got, want) and got.stride() == want.stride() and got.dtype == dtype, (seed, mode)


@torch.no_grad()
def test_prepared_results_stay(ops, calls):
    """What a call returned is not written by the next one, and inputs may lie anyhow."""
    unet = tiny_unet("sd15")
    run, inputs = calls(unet), unet_inputs(unet)
    first = run(PREPARED, inputs)
    kept = first.clone()
    second = run(PREPARED, other(inputs, 4))
    assert torch.equal(first, kept) and not torch.equal(first, second)
    wide = randn(2, 4, 8, 16)[..., ::2]  # every other column of a picture
    want = run(EAGER, inputs | dict(sample=wide.contiguous()))
    assert torch.equal(run(PREPARED, inputs | dict(sample=wide)), want)
    assert torch.equal(run(PREPARED, inputs | dict(sample=wide.contiguous(memory_format=torch.channels_last))), want)


def test_prepared_across_inference_mode(ops, calls):
    """Memory that was made within torch.inference_mode() is written outside of it, and the other way round."""
    unet = tiny_unet("sd15")
    for first, second in ((torch.inference_mode, torch.no_grad), (torch.no_grad, torch.inference_mode)):
        run, inputs = calls(unet), unet_inputs(unet)
        changed = other(inputs, 5)
        with first():
            run(PREPARED, inputs)
        with second():
            assert torch.equal(run(PREPARED, changed), run(EAGER, changed))


@torch.no_grad()
def test_prepared_shapes_come_and_go(ops, calls):
    """More shapes than plans are kept, forwards and backwards; texts of other lengths between them."""
    unet = tiny_unet("sd15")
    run, inputs = calls(unet), unet_inputs(unet)
    shapes = [(1, 8, 8), (2, 8, 8), (2, 4, 6), (1, 5, 7), (3, 8, 4), (2, 2, 2)]
    for n, h, w in shapes + shapes[::-1]:
        for tokens in (77, 9):
            call = dict(sample=randn(n, 4, h, w), timestep=inputs["timestep"],
                        encoder_hidden_states=randn(n, tokens, unet.config.cross_attention_dim, seed=tokens))
            assert torch.equal(run(PREPARED, call), run(EAGER, call)), (n, h, w, tokens)


@torch.no_grad()
def test_the_same_text_is_kept(ops, calls):
    unet = tiny_unet("sd15")
    run, inputs = calls(unet), unet_inputs(unet)
    changed = inputs | dict(encoder_hidden_states=randn(*inputs["encoder_hidden_states"].shape, seed=9))
    for mode in (EAGER, PREPARED):
        want, new = run(mode, inputs), run(mode, changed)
        assert psnr(want, new) < 60
        assert torch.equal(run(mode, inputs, same_text=True), new)  # the caller's word counts
        assert torch.equal(run(mode, inputs), want)
        assert torch.equal(run(CAPTURED, changed, same_text=True), new)  # nothing is kept there
        assert torch.equal(run(mode, changed, same_text=True), want)
        run(CAPTURED, changed)  # nor was it kept here, but seen
        assert torch.equal(run(mode, changed, same_text=True), new)


@torch.no_grad()
def test_what_the_engine_declines_is_the_modules(ops):
    """Also a text that it then has not seen, though the caller passes it twice."""
    unet = tiny_unet("sd15")
    engine, inputs = ops.EngineUNet(unet), unet_inputs(unet)
    engine(**inputs)
    inputs["encoder_hidden_states"] = randn(*inputs["encoder_hidden_states"].shape, seed=9)
    want = unet(**inputs).sample
    ops.set_kernels_enabled(False)
    try:
        assert torch.equal(engine(**inputs).sample, want) and "switched off" in engine.declined
    finally:
        ops.set_kernels_enabled(True)
    assert psnr(engine(**inputs).sample, want) >= 90 and engine.declined == ""


@torch.no_grad()
@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_one_operator_of_a_compiled_graph(ops, kind):
    """It looks at the module in each call, as without the compiler."""
    unet, plain = tiny_unet(kind), tiny_unet(kind)
    inputs, operators = unet_inputs(unet), []

    def backend(graph, _example):
        operators.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    ops.optimize_sd_model(unet, "performance", engine=True)
    compiled = torch.compile(unet, fullgraph=True, backend=backend)
    want = plain(**inputs).sample
    assert psnr(compiled(**inputs).sample, want) >= 90
    assert sum("_unet_forward" in name for name in operators) == 1 and not any("conv2d" in name for name in operators)
    assert ops.engine_reasons(unet) == {"unet": ""}
    for model in (unet, plain):
        model.mid_block.resnets[0].conv1.weight *= 2
    assert psnr(compiled(**inputs).sample, plain(**inputs).sample) >= 90
    for model in (unet, plain):
        model.mid_block.resnets[0].conv1.register_forward_hook(lambda module, args, y: y * 0.25)
    got = compiled(**inputs, return_dict=False)[0]
    assert psnr(got, plain(**inputs).sample) >= 90 and psnr(got, want) < 80
    torch._dynamo.reset()


def test_opcheck_of_the_compiled_operator(ops):
    unet = tiny_unet("sd15")
    ops.optimize_sd_model(unet, "performance", engine=True)
    engine = unet._rocm_sd_patch.engine
    inputs = unet_inputs(unet)
    torch.library.opcheck(torch.ops.rocm_sd._unet_forward.default,
                          (engine.key, inputs["sample"], torch.full((2,), 500), inputs["encoder_hidden_states"], None, None, None))
