"""Models against Diffusers and transformers on the CPU in float32, block by block.

In f32 every block agrees within 1e-4 of its largest value. In bf16 the bound is derived: each of the n layers between
input and output rounds its result once (relative error at most 2^-9, about uniform), so that the root mean square error
grows like sqrt(n) 2^-9 / sqrt(3); residual branches of unit gain can double it. A root mean square over a whole result
hardly varies, so that the bound needs no further width.
"""

from __future__ import annotations

import math
import subprocess

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save_file

F32_TOLERANCE = 1e-4


def nhwc(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    assert got.shape == want.shape
    assert torch.isfinite(got).all()
    return ((got - want).abs().max() / want.abs().max()).item()


def rms_relative(got: torch.Tensor, want: torch.Tensor) -> float:
    assert got.shape == want.shape
    return ((got - want).pow(2).mean() / want.pow(2).mean()).sqrt().item()


def bf16_tolerance(model: torch.nn.Module) -> float:
    layers = sum(1 for m in model.modules() if not list(m.children()) and list(m.parameters()))
    return 2 * math.sqrt(layers) * 2**-9 / math.sqrt(3)


def seeded(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def run_model(program, tmp_path):
    """run_model(kind, model, inputs, dtype): the results of model_main by name."""

    def run(kind: str, model: torch.nn.Module, inputs: dict[str, torch.Tensor], dtype: str = "f32"):
        folder = tiny_models.write_model(model, tmp_path / "model")
        save_file({name: value.contiguous() for name, value in inputs.items()}, tmp_path / "in.safetensors")
        command = [program("model_main"), kind, folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors", dtype]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        results = load_file(tmp_path / "out.safetensors")
        for name, value in results.items():  # a planned and replayed forward gives the same bits
            if name.startswith("replayed."):
                assert torch.equal(value, results[name.removeprefix("replayed.")]), name
        return results

    return run


class Recorder:
    """Records the outputs of a model's modules by name while it is called."""

    def __init__(self, model: torch.nn.Module, prefix: str = ""):
        self.outputs: dict[str, torch.Tensor] = {}
        for name, module in model.named_modules():
            if name.startswith(prefix) and name:
                module.register_forward_hook(self._hook(name.removeprefix(prefix)))

    def _hook(self, name: str):
        def record(module, inputs, output):
            value = output if torch.is_tensor(output) else output[0]
            self.outputs[name] = value.detach()

        return record


def compare_taps(results: dict[str, torch.Tensor], recorder: Recorder, least: int) -> None:
    taps = {name.removeprefix("tap."): value for name, value in results.items() if name.startswith("tap.")}
    assert len(taps) >= least
    for name, value in taps.items():
        assert relative(value, nhwc(recorder.outputs[name])) <= F32_TOLERANCE, name


def unet_inputs(model, batch: int, height: int, width: int, tokens: int = 7) -> tuple[dict, dict]:
    """(inputs of model_main, arguments of the Diffusers model)."""
    config = model.config
    context_dim = config.cross_attention_dim
    context_dim = context_dim if isinstance(context_dim, int) else context_dim[0]
    sample = seeded(1, batch, config.in_channels, height, width)
    context = seeded(2, batch, tokens, context_dim)
    timestep = torch.tensor([981.0, 13.5, 500.0, 1.0][:batch])
    ours = {"latents": nhwc(sample), "context": context, "timestep": timestep}
    theirs = dict(sample=sample, timestep=timestep, encoder_hidden_states=context)
    if config.addition_embed_type:
        ids = (config.projection_class_embeddings_input_dim - 20) // config.addition_time_embed_dim
        ours |= {"text_embeds": seeded(3, batch, 20), "time_ids": 512 * seeded(4, batch, ids).abs()}
        theirs["added_cond_kwargs"] = {name: ours[name] for name in ("text_embeds", "time_ids")}
    if config.time_cond_proj_dim:
        ours["guidance_cond"] = theirs["timestep_cond"] = seeded(5, batch, config.time_cond_proj_dim)
    return ours, theirs


def check_unet(run_model, kind: str, batch: int, height: int, width: int, tokens: int = 7) -> None:
    model = tiny_models.unet(kind)
    ours, theirs = unet_inputs(model, batch, height, width, tokens)
    recorder = Recorder(model)
    with torch.no_grad():
        want = model(**theirs).sample
    results = run_model("unet", model, ours)
    compare_taps(results, recorder, least=8)
    assert relative(results["output"], nhwc(want)) <= F32_TOLERANCE


@pytest.mark.parametrize("kind", tiny_models.UNETS)
def test_unet_matches_diffusers_block_by_block(run_model, kind):
    check_unet(run_model, kind, batch=2, height=8, width=16)


@pytest.mark.parametrize(("kind", "height", "width", "batch"),
                         [("sd15", 9, 7, 1), ("sd15", 5, 13, 2), ("sdxl", 6, 11, 1), ("small-sd", 1, 3, 1),
                          ("unusual", 15, 10, 1)])
def test_unet_takes_odd_sizes(run_model, kind, height, width, batch):
    check_unet(run_model, kind, batch, height, width)


@pytest.mark.parametrize("tokens", [77, 154, 1])
def test_unet_takes_any_number_of_tokens(run_model, tokens):
    check_unet(run_model, "sd15", batch=1, height=8, width=8, tokens=tokens)


@pytest.mark.parametrize("kind", ["sd15", "sdxl"])
def test_unet_in_bf16(run_model, kind):
    model = tiny_models.unet(kind)
    ours, theirs = unet_inputs(model, 2, 8, 8)
    with torch.no_grad():
        want = nhwc(model(**theirs).sample)
    got = run_model("unet", model, ours, "bf16")["output"]
    assert rms_relative(got, want) <= bf16_tolerance(model)


@pytest.mark.parametrize(("kind", "options", "height", "width"), [
    ("sd15", {}, 8, 16), ("sd15", {}, 9, 7), ("sd21", {}, 8, 8), ("sdxl", {}, 8, 8), ("sdxl", {}, 5, 13), ("lcm", {}, 8, 8),
    ("sd15", dict(controlnet_conditioning_channel_order="bgr"), 8, 8), ("sd15", dict(global_pool_conditions=True), 8, 6),
    ("sd15", dict(conditioning_embedding_out_channels=(16, 24, 32)), 8, 8), ("ssd-1b", {}, 8, 8)])
def test_controlnet_matches_diffusers_block_by_block(run_model, tmp_path, kind, options, height, width):
    unet = tiny_models.unet(kind)
    if kind == "ssd-1b":
        options = dict(mid_block_type="UNetMidBlock2D")
    control = tiny_models.controlnet(unet, seed=1, **options)
    tiny_models.write_model(control, tmp_path / "model" / "control")
    ours, theirs = unet_inputs(unet, 2, height, width)
    scale = 2 ** (len(control.config.conditioning_embedding_out_channels) - 1)
    picture = seeded(6, 2, 3, scale * height, scale * width).abs()
    count = len(control.controlnet_down_blocks) + 1
    factors = seeded(7, count, 2)
    bgr = options.get("controlnet_conditioning_channel_order") == "bgr"  # Diffusers turns the channels round, we the picture
    ours |= {"picture": nhwc(picture.flip(1) if bgr else picture), "factors": factors}
    for inputs in (ours, theirs):  # a ControlNet has no input for the scale of guidance
        inputs.pop("guidance_cond", None), inputs.pop("timestep_cond", None)
    recorder = Recorder(control)
    with torch.no_grad():
        down, middle = control(**theirs, controlnet_cond=picture, return_dict=False)
        down = [d * factors[i, :, None, None, None] for i, d in enumerate(down)]
        want = unet(**theirs, down_block_additional_residuals=down, mid_block_additional_residual=middle * factors[-1, :, None, None, None]).sample
        plain = unet(**theirs).sample
    assert relative(plain, want) > 0.05, "the ControlNet changes too little to prove anything"
    results = run_model("controlnet", unet, ours)
    recorder.outputs["conv_in"] = recorder.outputs["conv_in"] + recorder.outputs["controlnet_cond_embedding"]
    if not options.get("global_pool_conditions"):
        compare_taps(results, recorder, least=8 + count)
    assert relative(results["output"], nhwc(want)) <= F32_TOLERANCE


def test_controlnet_in_bf16(run_model, tmp_path):
    unet = tiny_models.unet("sd15")
    control = tiny_models.controlnet(unet, seed=1)
    tiny_models.write_model(control, tmp_path / "model" / "control")
    ours, theirs = unet_inputs(unet, 2, 8, 8)
    picture, factors = seeded(6, 2, 3, 64, 64).abs(), torch.ones(len(control.controlnet_down_blocks) + 1, 2)
    with torch.no_grad():
        down, middle = control(**theirs, controlnet_cond=picture, return_dict=False)
        want = nhwc(unet(**theirs, down_block_additional_residuals=down, mid_block_additional_residual=middle).sample)
    got = run_model("controlnet", unet, ours | {"picture": nhwc(picture), "factors": factors}, "bf16")["output"]
    assert rms_relative(got, want) <= bf16_tolerance(unet)


@pytest.mark.parametrize("kind", ["sd15", "sdxl", "small-sd"])
def test_residuals_are_added_to_skips_and_middle(run_model, kind):
    model = tiny_models.unet(kind)
    ours, theirs = unet_inputs(model, 2, 8, 6)
    skips = []
    hook = model.up_blocks[0].register_forward_pre_hook(lambda module, args, kwargs: skips.append(kwargs["hidden_states"]), with_kwargs=True)
    shapes = []
    hooks = [hook] + [model.conv_in.register_forward_hook(lambda m, a, out: shapes.append(out.shape))]
    hooks += [block.register_forward_hook(lambda m, a, out: shapes.extend(x.shape for x in out[1])) for block in model.down_blocks]
    with torch.no_grad():
        plain = model(**theirs).sample
        for h in hooks:
            h.remove()
        down = [seeded(10 + i, *shape) for i, shape in enumerate(shapes)]
        middle = seeded(9, *skips[0].shape)
        want = model(**theirs, down_block_additional_residuals=down, mid_block_additional_residual=middle).sample
    assert relative(plain, want) > 0.05
    ours |= {f"residual.{i}": nhwc(d) for i, d in enumerate(down)} | {"residual.middle": nhwc(middle)}
    assert relative(run_model("unet", model, ours)["output"], nhwc(want)) <= F32_TOLERANCE


def decode(model, latents: torch.Tensor) -> torch.Tensor:
    shift = getattr(model.config, "shift_factor", None) or 0.0
    with torch.no_grad():
        return model.decode(latents / model.config.scaling_factor + shift).sample


@pytest.mark.parametrize(("options", "batch", "height", "width"), [
    ({}, 1, 8, 8), ({}, 2, 5, 7), ({"use_post_quant_conv": False, "use_quant_conv": False}, 1, 4, 6),
    ({"mid_block_add_attention": False, "shift_factor": None, "layers_per_block": 1}, 1, 4, 4),
    ({"latent_channels": 16, "block_out_channels": (32, 64, 64, 96), "down_block_types": ("DownEncoderBlock2D",) * 4,
      "up_block_types": ("UpDecoderBlock2D",) * 4}, 1, 4, 4)])
def test_vae_matches_diffusers(run_model, options, batch, height, width):
    model = tiny_models.vae(**options)
    latents = seeded(1, batch, model.config.latent_channels, height, width)
    recorder = Recorder(model, "decoder.")
    want = decode(model, latents)
    results = run_model("vae-decoder", model, {"latents": nhwc(latents)})
    compare_taps(results, recorder, least=5)
    assert relative(results["output"], nhwc(want)) <= F32_TOLERANCE

    scale = 2 ** (len(model.config.block_out_channels) - 1)
    picture = seeded(2, batch, 3, height * scale, width * scale).tanh()
    noise = seeded(3, *latents.shape)
    recorder = Recorder(model, "encoder.")
    with torch.no_grad():
        posterior = model.encode(picture).latent_dist
    results = run_model("vae-encoder", model, {"picture": nhwc(picture), "noise": nhwc(noise)})
    compare_taps(results, recorder, least=5)
    shift = model.config.shift_factor or 0.0
    assert relative(results["moments"], nhwc(posterior.parameters)) <= F32_TOLERANCE
    for name, z in {"mode": posterior.mean, "output": posterior.mean + posterior.std * noise}.items():
        assert relative(results[name], nhwc((z - shift) * model.config.scaling_factor)) <= F32_TOLERANCE, name


def test_vae_in_bf16(run_model):
    model = tiny_models.vae()
    latents = seeded(1, 1, 4, 8, 8)
    want = nhwc(decode(model, latents))
    got = run_model("vae-decoder", model, {"latents": nhwc(latents)}, "bf16")["output"]
    assert rms_relative(got, want) <= bf16_tolerance(model.decoder)


def test_taesd_matches_diffusers(run_model):
    model = tiny_models.taesd()
    latents = 3 * seeded(1, 2, 4, 5, 6)  # far enough out for the clamp to matter
    recorder = Recorder(model)
    with torch.no_grad():
        want = model.decode(latents).sample
    results = run_model("taesd-decoder", model, {"latents": nhwc(latents)})
    assert relative(results["output"], nhwc(want)) <= F32_TOLERANCE
    blocks = {name for name in results if name.startswith("tap.decoder.layers.")}
    for name in blocks - {"tap.decoder.layers.0"}:  # the first convolution's tap is behind its activation
        assert relative(results[name], nhwc(recorder.outputs[name.removeprefix("tap.")])) <= F32_TOLERANCE, name
    assert len(blocks) == 1 + (3 + 3 + 3 + 1) + 4

    picture = seeded(2, 1, 3, 32, 40).tanh()
    with torch.no_grad():
        want = model.encode(picture).latents
    assert relative(run_model("taesd-encoder", model, {"picture": nhwc(picture)})["output"],
                    nhwc(want)) <= F32_TOLERANCE


def token_ids(batch: int, length: int, vocabulary: int, end: int) -> torch.Tensor:
    """Random ids below the end token, which stands somewhere and again as padding to the end of the row."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(3, end - 1, (batch, length), generator=generator)
    for row, position in enumerate(torch.randint(1, length, (batch,), generator=generator)):
        ids[row, position:] = end
    assert ids.max() < vocabulary
    return ids.to(torch.int32)


def run_text_encoder(run_model, model, ids, skip: int, final_norm: bool, dtype: str = "f32"):
    return run_model("clip", model, {"ids": ids, "skip": torch.tensor([skip], dtype=torch.int32),
                                     "final_norm": torch.tensor([int(final_norm)], dtype=torch.int32)}, dtype)


@pytest.mark.parametrize("kind", ["clip-l", "openclip-h", "openclip-bigg"])
@pytest.mark.parametrize(("batch", "length"), [(1, 77), (3, 77), (2, 5)])
def test_text_encoder_matches_transformers(run_model, kind, batch, length):
    model = tiny_models.text_encoder(kind)
    ids = token_ids(batch, length, 200, 199)
    with torch.no_grad():
        want = model(input_ids=ids.long(), output_hidden_states=True)
    results = run_text_encoder(run_model, model, ids, skip=0, final_norm=True)
    assert relative(results["tap.embeddings"], want.hidden_states[0]) <= F32_TOLERANCE
    for i, state in enumerate(want.hidden_states[1:]):
        assert relative(results[f"tap.layers.{i}"], state) <= F32_TOLERANCE, i
    pooled = want.text_embeds if kind == "openclip-bigg" else want.pooler_output
    assert relative(results["output"], want.last_hidden_state) <= F32_TOLERANCE
    assert relative(results["pooled"], pooled) <= F32_TOLERANCE


@pytest.mark.parametrize("skip", [1, 3])
def test_clip_skip(run_model, skip):
    model = tiny_models.text_encoder("openclip-bigg")
    ids = token_ids(2, 77, 200, 199)
    with torch.no_grad():
        want = model(input_ids=ids.long(), output_hidden_states=True)
        normed = model.text_model.final_layer_norm(want.hidden_states[-1 - skip])
    raw = run_text_encoder(run_model, model, ids, skip, final_norm=False)
    assert relative(raw["output"], want.hidden_states[-1 - skip]) <= F32_TOLERANCE
    assert relative(raw["pooled"], want.text_embeds) <= F32_TOLERANCE  # from the last layer, whatever is skipped
    assert relative(run_text_encoder(run_model, model, ids, skip, final_norm=True)["output"], normed) <= F32_TOLERANCE


def test_text_encoder_in_bf16(run_model):
    model = tiny_models.text_encoder("openclip-bigg")
    ids = token_ids(2, 77, 200, 199)
    with torch.no_grad():
        want = model(input_ids=ids.long()).last_hidden_state
    got = run_text_encoder(run_model, model, ids, skip=0, final_norm=True, dtype="bf16")["output"]
    assert rms_relative(got, want) <= bf16_tolerance(model)
