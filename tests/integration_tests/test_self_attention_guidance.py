"""Self-attention guidance against Diffusers' StableDiffusionSAGPipeline. Small random models, fp32 on the CPU, >= 60 dB."""

from __future__ import annotations

import diffusers
import guidance_oracle
import pytest
import torch
from control_models import control_folder, drawing
from pictures import psnr, read_parameters, read_picture
from pipelines_oracle import DDIM, command, ours, same, theirs
from test_diffusers_pipelines import model  # noqa: F401 (fixture)


@pytest.fixture(scope="module")
def looking(model, tmp_path_factory):  # noqa: F811
    """A model whose middle block looks somewhere."""
    made = {}

    def make(kind, velocity=False):
        if (kind, velocity) in made:
            return made[kind, velocity]
        scheduler = (DDIM[0], DDIM[1] | dict(prediction_type="v_prediction")) if velocity else DDIM
        made[kind, velocity] = guidance_oracle.looking(model(kind, scheduler), tmp_path_factory.mktemp("looking") / kind)
        return made[kind, velocity]

    return make


def guided(folder, width, height, **options):
    pipe = diffusers.StableDiffusionSAGPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    return theirs(folder, pipe, width=width, height=height, **options)


@pytest.mark.parametrize("kind, velocity", [("sd15", False), ("sd15", True), ("sd21v", True)])
@pytest.mark.parametrize("width, height, scale", [(128, 128, 5.0), (200, 168, 5.0), (136, 264, 1.0)])
def test_pictures(rocm_sd, looking, tmp_path, kind, velocity, width, height, scale):
    """Maps of other sides than 8, and odd ones."""
    folder = looking(kind, velocity)
    want = guided(folder, width, height, sag_scale=3.0, guidance_scale=scale)
    size = ["-W", width, "-H", height]
    same(ours(rocm_sd, folder, tmp_path / "a.png", *size, "--sag-scale", 3, scale=scale, size=None), want)
    assert psnr(ours(rocm_sd, folder, tmp_path / "b.png", *size, scale=scale, size=None), want) < 45
    assert "SAG scale: 3" in read_parameters(tmp_path / "a.png")


@pytest.mark.parametrize("sampler", ["euler", "dpmpp_2m", "heun"])
def test_other_samplers_draw_with_it(rocm_sd, looking, tmp_path, sampler):
    """Latents of another scale: one step of Euler to the end is one of DDIM, and the others run."""
    folder = looking("sd15")
    args = ["-W", 128, "-H", 128, "--sag-scale", 3]
    picture = ours(rocm_sd, folder, tmp_path / "a.png", *args, "--sampler", sampler, size=None)
    assert psnr(picture, ours(rocm_sd, folder, tmp_path / "b.png", *args[:4], "--sampler", sampler, size=None)) < 50
    if sampler == "euler":
        one = [ours(rocm_sd, folder, tmp_path / f"{name}.png", *args, "--sampler", name, "--sigmas", "9.5,0", size=None)
               for name in ("euler", "dpmpp_2m")]
        assert psnr(*one) >= 60


@pytest.mark.parametrize("args", [["--batch", 2], ["--offload"]])
def test_images_of_a_batch_have_their_own_maps(rocm_sd, looking, tmp_path, args):
    folder = looking("sd15")
    size = ["-W", 128, "-H", 136, "--sag-scale", 3]
    rocm_sd(*command(folder, tmp_path / "a{index}.png", *size, *args, size=None))
    for index in range(1, 3 if "--batch" in args else 2):
        rocm_sd(*command(folder, tmp_path / "b.png", *size, "--seed", 6 + index, size=None))
        found = tmp_path / f"a{index}.png"
        assert psnr(read_picture(found if found.exists() else tmp_path / "a1.png"), read_picture(tmp_path / "b.png")) >= 60


def test_beside_a_controlnet_and_other_guidance(rocm_sd, looking, tmp_path):
    folder = looking("sd15")
    hint = drawing(tmp_path / "hint.png", 128, 128)
    net = control_folder(folder, tmp_path / "net")
    args = ["-W", 128, "-H", 128, "--control", net, "--control-image", hint]
    for more in [], ["--pag-scale", 3], ["--guidance-rescale", 0.7], ["--freeu-v2", "1.3,1.4,0.9,0.2"], ["--guidance-end", 0.5]:
        with_it = ours(rocm_sd, folder, tmp_path / "a.png", *args, *more, "--sag-scale", 3, size=None)
        without = ours(rocm_sd, folder, tmp_path / "b.png", *args, *more, size=None)
        assert psnr(with_it, without) < 50


@pytest.mark.bad_input
@pytest.mark.parametrize("args, message", [
    (["--sag-scale", -1], "sag-scale"), (["--sag-scale", 1, "--prompt", "a cat AND a dog"], "sag-scale: not with AND"),
    (["--sag-scale", 1, "--mimic-scale", 3], "sag-scale: not with"), (["--sag-scale", 1, "--tile-size", 64], "sag-scale: not with tile-size"),
    (["--sag-scale", 1, "-W", 32, "-H", 64], "sag-scale: expected latents of 5")])
def test_bad_values(rocm_sd, model, tmp_path, args, message):  # noqa: F811
    done = rocm_sd(*command(model("sd15"), tmp_path / "a.png", *args), code=2)
    assert message in done.stderr and not (tmp_path / "a.png").exists()


@pytest.mark.bad_input
def test_a_model_without_a_middle_block(rocm_sd, model, tmp_path):  # noqa: F811
    folder = model("sd15", unet=(("mid_block_type", None),))
    assert "no self attention in a middle block" in rocm_sd(*command(folder, tmp_path / "a.png", "--sag-scale", 1), code=2).stderr
