"""Union ControlNets and T2I-Adapters against Diffusers on the CPU in float32, block by block (test_models.py has the rest)."""

from __future__ import annotations

import json

import diffusers
import pytest
import tiny_models
import torch
from safetensors.torch import save_file
from test_models import F32_TOLERANCE, Recorder, compare_taps, nhwc, relative, run_model, seeded, unet_inputs  # noqa: F401 (fixture)


def write_union(control, folder):
    """Under the names of layers, as the engine's reader gives them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dict(control.config) | {"_class_name": "ControlNetUnionModel"}, default=str))
    tensors = {}
    for name, value in control.state_dict().items():
        name = name.replace(".attn.in_proj_", ".attn.in_proj.") if "transformer_layes" in name else name
        tensors["task_embedding.weight" if name == "task_embedding" else name] = value.contiguous()
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("kinds, guess", [((3,), False), ((0, 5), False), ((1, 3, 1), True)])
def test_union_matches_diffusers_block_by_block(run_model, tmp_path, kinds, guess):  # noqa: F811
    unet = tiny_models.unet("sdxl")
    fields = ("down_block_types", "block_out_channels", "norm_num_groups", "cross_attention_dim", "transformer_layers_per_block",
              "attention_head_dim", "use_linear_projection", "addition_embed_type", "addition_time_embed_dim",
              "projection_class_embeddings_input_dim")
    control = tiny_models.random_weights(diffusers.ControlNetUnionModel(
        **{field: unet.config[field] for field in fields}, conditioning_embedding_out_channels=(8, 16, 24, 32), num_control_type=6,
        num_trans_channel=32, num_proj_channel=32, num_trans_head=4, num_trans_layer=2), 1)
    with torch.no_grad():
        control.task_embedding.copy_(seeded(9, 6, 32))
    write_union(control, tmp_path / "model" / "control")
    ours, theirs = unet_inputs(unet, 2, 8, 6)
    # The same for all rows, as in a pipeline: Diffusers' attention runs over the batch.
    pictures = [seeded(20 + i, 1, 3, 64, 48).abs().repeat(2, 1, 1, 1) for i in range(len(kinds))]
    scales = [0.8 - 0.3 * i for i in range(len(kinds))]
    types = torch.zeros(2, 6)
    types[:, list(kinds)] = 1
    count = len(control.controlnet_down_blocks) + 1
    one = len(kinds) == 1
    factors = (torch.logspace(-1, 0, count) if guess else torch.ones(count)) * (scales[0] if one else 1)
    ours |= {"types": types, "factors": factors[:, None].repeat(1, 2)}
    for i, (picture, kind, scale) in enumerate(zip(pictures, kinds, scales)):
        ours |= {f"picture.{i}": nhwc(picture), f"type.{i}": torch.full((2, 1), kind, dtype=torch.int32),
                 f"scale.{i}": torch.full((2,), 1.0 if one else scale)}
    recorder, seen = Recorder(control), []
    control.down_blocks[0].register_forward_pre_hook(lambda m, args, kwargs: seen.append(kwargs["hidden_states"]), with_kwargs=True)
    with torch.no_grad():
        down, middle = control(**theirs, controlnet_cond=pictures, control_type=types, control_type_idx=list(kinds),
                               conditioning_scale=scales, guess_mode=guess, return_dict=False)
        want = unet(**theirs, down_block_additional_residuals=down, mid_block_additional_residual=middle).sample
        plain = unet(**theirs).sample
    assert relative(plain, want) > 0.05, "the ControlNet changes too little to prove anything"
    results = run_model("controlnet", unet, ours)
    recorder.outputs["conv_in"] = seen[0]  # with what the pictures add
    compare_taps({n: v for n, v in results.items() if "controlnet_" not in n}, recorder, least=8)
    assert relative(results["output"], nhwc(want)) <= F32_TOLERANCE


@pytest.mark.parametrize("kind, adapter, channels, height, width", [
    ("sd15", "full_adapter", (32, 64, 96, 96), 8, 16), ("sd15", "full_adapter", (32, 64, 96, 96), 9, 7),
    ("sd15", "light_adapter", (32, 64, 96), 8, 8), ("sd15", "light_adapter", (32, 64, 96), 5, 11),
    ("sdxl", "full_adapter_xl", (32, 64, 96, 96), 8, 8), ("sdxl", "full_adapter_xl", (32, 64, 96, 96), 6, 10)])
@pytest.mark.parametrize("in_channels", [3, 1])
def test_adapters_match_diffusers_block_by_block(run_model, tmp_path, kind, adapter, channels, height, width, in_channels):  # noqa: F811
    unet = tiny_models.unet(kind)
    model = tiny_models.random_weights(diffusers.T2IAdapter(
        in_channels=in_channels, channels=list(channels), num_res_blocks=2, downscale_factor=16 if adapter.endswith("xl") else 8,
        adapter_type=adapter), 1)
    tiny_models.write_model(model, tmp_path / "model" / "control")
    ours, theirs = unet_inputs(unet, 2, height, width)
    picture = seeded(6, 2, in_channels, 8 * height, 8 * width).abs()
    factors = torch.tensor([0.7, 0.4])
    ours |= {"picture": nhwc(picture.expand(-1, 3, -1, -1)), "factors": factors}
    recorder = Recorder(model)
    with torch.no_grad():
        maps = [x * factors[:, None, None, None] for x in model(picture)]
        want = unet(**theirs, down_intrablock_additional_residuals=[x.clone() for x in maps]).sample
        plain = unet(**theirs).sample
    assert relative(plain, want) > 0.05, "the adapter changes too little to prove anything"
    results = run_model("t2i", unet, ours)
    compare_taps(results, recorder, least=4)
    assert relative(results["output"], nhwc(want)) <= F32_TOLERANCE
