"""Features of pictures in combinations: 60 that a seed draws, in which every pair of levels comes up (feature_matrix.py).

Each picture is compared with that of Diffusers' pipelines in f32 on the CPU: to 60 dB where ours is computed in f32 too. With weights in 8
bits and on an emulated GPU (f16) the bound is lower, and the picture must be nearer to Diffusers' than to those without one of its features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch
from control_models import adapter_folder, control_folder, drawing, union_folder
from feature_matrix import IMPOSSIBLE, LEVELS, Case, draw_cases, every_pair, pairs_of
from guidance_oracle import add_regions, add_self_attention, cells, looking, shares_of
from ip_models import adapter_file, encoder_folder, image_encoder
from peft import LoraConfig
from PIL import Image
from pictures import psnr, read_picture
from pipelines_oracle import NEGATIVE, PROMPT, SCALE, SEED, as_bytes, command
from safetensors.torch import load_file, save_file
from test_diffusers_pipelines import model as plain_model  # noqa: F401 (fixture)
from test_lora import ATTENTION, TEXT, encoders, state
from test_lora_blocks import IDS, scaled

CASES, CASES_SEED = 60, 20
STEPS, STRENGTH, SPLIT = 4, 0.8, 0.5
LORA_WEIGHTS = {"none": [], "unet": [("first", 0.8, 0.0)], "whole": [("first", 0.8, 0.8)], "two": [("first", 0.6, 0.6), ("second", -0.7, -0.7)]}
CONTROL_STRENGTH, ADAPTER_STRENGTH, IP_WEIGHT = 0.8, 0.7, 0.8
CANNY = 3  # of union ControlNets
SIZES = {"attention": 128}  # at 64 the middle block has one pixel, which gets all of the attention and no more
REGIONS, REGION_BASE, ATTENTION_SCALE = {(0.1, 0.25, 0.5, 0.4): "a house by the sea", (0.45, 0.0, 0.55, 1.0): "two green birds"}, 0.2, 3.0
EMULATED = "emu:gfx1100"
# dB against Diffusers' f32 image. Measured: f16 on the emulated GPU 56 and more, 8 bits 46 and more.
FLOORS = {"cpu plain": 60, "emulated plain": 50, "cpu int8": 40, "emulated int8": 40}
# Self-attention guidance blurs what is above the mean of a map: of fewer bits single pixels fall on its other side. Measured: f16 27 and more, 8 bits
# 29 and more, where the same cases in f32 have 81.
LEAST_OF_MAPS = 25
QUICK = 8  # of the cases on the CPU; the others are for the night
NAMES = {("noise", False): "", ("image", False): "Img2Img", ("mask", False): "Inpaint",
         ("noise", True): "ControlNet", ("image", True): "ControlNetImg2Img", ("mask", True): "ControlNetInpaint"}
NETS = ("net", "both", "union")  # levels of control with a ControlNet


def side(case: Case) -> int:
    return SIZES.get(case.guidance, 64)


def base_of(case: Case) -> str:
    return "sdxl" if case.model == "refined" else case.model


def block_factors(kind: str) -> dict[str, float]:
    """Factors of the blocks that a LoRA's list names, in the list's order."""
    names = IDS[12 if kind == "sdxl" else 17]
    return {name: (0.25, 0.6, 1.0, 1.4)[i % 4] for i, name in enumerate(names)}


# --- what the cases draw with ---

@pytest.fixture(scope="module")
def model(plain_model, tmp_path_factory):  # noqa: F811
    """model(kind): its middle block looks somewhere."""
    made = {}

    def make(kind):
        if kind not in made:
            made[kind] = looking(plain_model(kind), tmp_path_factory.mktemp("looking") / kind)
        return made[kind]

    return make


@pytest.fixture(scope="module")
def loras(model, tmp_path_factory):
    """loras(kind, name): a LoRA of rank 4 on the UNet and the text encoders."""
    made = {}

    def make(kind, name):
        if (kind, name) not in made:
            pipe = diffusers.DiffusionPipeline.from_pretrained(model(kind), torch_dtype=torch.float32)
            torch.manual_seed({"first": 0, "second": 1}[name])
            config = dict(r=4, lora_alpha=4, init_lora_weights=True)
            pipe.unet.add_adapter(LoraConfig(target_modules=ATTENTION, **config))
            for encoder in encoders(pipe).values():
                encoder.add_adapter(LoraConfig(target_modules=TEXT, **config))
            with torch.no_grad():
                for module in (pipe.unet, *encoders(pipe).values()):
                    for key, value in module.named_parameters():
                        if "lora_" in key:
                            value.normal_(0, 0.8 / value.shape[1] ** 0.5)
            made[kind, name] = tmp_path_factory.mktemp("loras") / f"{name}.safetensors"
            save_file(state(pipe), made[kind, name])
        return made[kind, name]

    return make


@pytest.fixture(scope="module")
def scaled_loras(loras, tmp_path_factory):
    """scaled_loras(kind, name): the LoRA with each block's change multiplied by its factor."""
    made = {}

    def make(kind, name):
        if (kind, name) not in made:
            made[kind, name] = tmp_path_factory.mktemp("scaled") / f"{name}.safetensors"
            save_file(scaled(load_file(loras(kind, name)), block_factors(kind)), made[kind, name])
        return made[kind, name]

    return make


@pytest.fixture(scope="module")
def image_adapters(model, tmp_path_factory):
    """image_adapters(kind, level): an IP-Adapter's file, its image encoder beside it."""
    made = {}

    def make(kind, level):
        if (kind, level) not in made:
            folder = tmp_path_factory.mktemp("ip")
            encoder_folder(folder / "image_encoder")
            unet = diffusers.UNet2DConditionModel.from_pretrained(model(kind) / "unet")
            made[kind, level] = adapter_file(folder / "ip.safetensors", level, unet, image_encoder())
        return made[kind, level]

    return make


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return drawing(tmp_path_factory.mktemp("seen") / "seen.png", 61, 90, seed=5)


@pytest.fixture(scope="module")
def unions(model, tmp_path_factory):
    """unions(kind): a union ControlNet's folder."""
    made = {}

    def make(kind):
        if kind not in made:
            made[kind] = union_folder(model(kind), tmp_path_factory.mktemp("unions") / "union")
        return made[kind]

    return make


@pytest.fixture(scope="module")
def nets(model, tmp_path_factory):
    """nets(kind): (ControlNet's folder, T2I-Adapter's folder)."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("nets")
            channels = diffusers.UNet2DConditionModel.load_config(model(kind) / "unet")["block_out_channels"]
            xl = kind == "sdxl"
            adapter = adapter_folder(folder / "adapter", "full_adapter_xl" if xl else "full_adapter",
                                     [channels[0], *channels[1:], channels[-1]] if xl else channels)
            made[kind] = control_folder(model(kind), folder / "net"), adapter
        return made[kind]

    return make


@dataclass(frozen=True)
class Pictures:
    init: Path
    mask: Path
    hint: Path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """pictures(side): what the cases of that size begin with, its mask off the latents' grid on every side, and what ControlNets see."""
    made = {}

    def make(size):
        if size not in made:
            folder = tmp_path_factory.mktemp("pictures")
            y, x = np.mgrid[0:size, 0:size] * 255 // size
            Image.fromarray(np.stack([x, y, np.full_like(x, 90)], -1).astype(np.uint8)).save(folder / "init.png")
            values = np.zeros((size, size), np.uint8)
            values[size // 5 + 1:45 * size // 64, size // 4 + 3:51 * size // 64] = 255
            Image.fromarray(values).save(folder / "mask.png")
            made[size] = Pictures(folder / "init.png", folder / "mask.png", drawing(folder / "hint.png", size, size))
        return made[size]

    return make


# --- by Diffusers ---

def add_adapter(pipe, folder, seen) -> None:
    """A T2I-Adapter's maps into every call of the UNet, as StableDiffusionAdapterPipeline gives them."""
    adapter = diffusers.T2IAdapter.from_pretrained(folder)
    pixels = torch.from_numpy(np.asarray(Image.open(seen).convert("RGB")).astype(np.float32) / 255).permute(2, 0, 1)[None]
    with torch.no_grad():
        maps = [ADAPTER_STRENGTH * m for m in adapter(pixels)]
    forward = pipe.unet.forward

    def with_maps(sample, *args, **kwargs):
        kwargs["down_intrablock_additional_residuals"] = [m.repeat(len(sample), 1, 1, 1) for m in maps]
        return forward(sample, *args, **kwargs)

    pipe.unet.forward = with_maps


def take_means(vae) -> None:
    """Of the VAE's posterior the mean, not a sample."""
    encode = vae.encode

    def wrapped(*args, **kwargs):
        out = encode(*args, **kwargs)
        out.latent_dist.sample = lambda generator=None: out.latent_dist.mode()
        return out

    vae.encode = wrapped


def end_early(pipe) -> None:
    """denoising_end, which StableDiffusionXLControlNetImg2ImgPipeline accepts among its **kwargs and does not heed."""
    get_timesteps = pipe.get_timesteps

    def cut(*args, **kwargs):
        steps, _ = get_timesteps(*args, **kwargs)
        trained = pipe.scheduler.config.num_train_timesteps
        steps = steps[steps >= round(trained - SPLIT * trained)]
        return steps, len(steps)

    pipe.get_timesteps = cut


@pytest.fixture(scope="module")
def theirs(model, loras, scaled_loras, nets, unions, image_adapters, seen, pictures):
    """theirs(case, size): Diffusers' pictures of the case, one for each of the batch; each drawn once."""
    known: dict[tuple[Case, int], list[np.ndarray]] = {}

    def pipe_of(case, size):
        kind, with_net = base_of(case), case.control in NETS
        name = ("StableDiffusionXL" if kind == "sdxl" else "StableDiffusion") + NAMES[case.start, with_net]
        options = {}
        if case.control == "union":
            name = name.replace("ControlNet", "ControlNetUnion")
            options = {"controlnet": diffusers.ControlNetUnionModel.from_pretrained(unions(kind))}
        elif with_net:
            options = {"controlnet": diffusers.ControlNetModel.from_pretrained(nets(kind)[0])}
        pipe = getattr(diffusers, f"{name}Pipeline").from_pretrained(model(kind), torch_dtype=torch.float32, **options)
        pipe.set_progress_bar_config(disable=True)
        take_means(pipe.vae)
        if uses := LORA_WEIGHTS[case.lora]:
            for name, _, _ in uses:
                file = (scaled_loras if case.applied == "blocks" else loras)(kind, name)
                pipe.load_lora_weights(str(file), adapter_name=name)
            weights = [{"unet": w} | dict.fromkeys(encoders(pipe), te) for _, w, te in uses]
            pipe.set_adapters([name for name, _, _ in uses], weights)
        if case.model == "refined" and with_net and case.start == "image":
            end_early(pipe)
        if case.ip != "none":
            file = image_adapters(kind, case.ip)
            pipe.load_ip_adapter(str(file.parent), subfolder="", weight_name=file.name, image_encoder_folder="image_encoder")
            pipe.set_ip_adapter_scale(IP_WEIGHT)
        if case.control in ("adapter", "both"):
            add_adapter(pipe, nets(kind)[1], pictures(size).hint)
        if case.guidance == "regions":
            shares = shares_of([cells(box, size // 8, size // 8) for box in REGIONS], REGION_BASE)
            add_regions(pipe, list(REGIONS.values()), shares, PROMPT, int(case.batch))
        elif case.guidance == "attention":
            add_self_attention(pipe, ATTENTION_SCALE)
        return pipe

    def draw(case, size):
        batch = int(case.batch)
        kwargs = dict(negative_prompt=NEGATIVE, guidance_scale=SCALE, num_inference_steps=STEPS, num_images_per_prompt=batch,
                      generator=[torch.Generator().manual_seed(SEED + i) for i in range(batch)])
        refined = case.model == "refined"
        more = dict(denoising_end=SPLIT, output_type="latent") if refined else dict(output_type="np")
        own = pictures(size)
        edges = Image.open(own.hint).convert("RGB")
        if case.control in NETS:
            more["controlnet_conditioning_scale"] = CONTROL_STRENGTH
        if case.control == "union":
            more |= dict(control_image=[edges], control_mode=[CANNY])
        elif case.control in NETS:
            more["image" if case.start == "noise" else "control_image"] = edges
        if case.ip != "none":
            more["ip_adapter_image"] = Image.open(seen).convert("RGB")
        if case.start != "noise":
            more |= dict(image=Image.open(own.init), strength=STRENGTH)
        if case.start == "mask":
            more |= dict(mask_image=Image.open(own.mask))
        if case.start != "image":
            more |= dict(width=size, height=size)
        images = pipe_of(case, size)(PROMPT, **kwargs, **more).images
        if not refined:
            return [as_bytes(image) for image in images]
        pipe = diffusers.StableDiffusionXLImg2ImgPipeline.from_pretrained(model("refiner"), torch_dtype=torch.float32)
        pipe.set_progress_bar_config(disable=True)
        kwargs |= dict(num_images_per_prompt=1, generator=None, denoising_start=SPLIT, output_type="np")
        return [as_bytes(pipe(PROMPT, image=latents[None], **kwargs).images[0]) for latents in images]

    def make(case, size):
        key = case.drawn(), size
        if key not in known:
            known[key] = draw(*key)
        return known[key]

    return make


# --- by rocm-sd ---

def computed(case: Case) -> list:
    device = ["--device", EMULATED, "--dtype", "f16"] if case.device == "emulated" else []
    return [*device, *(["--offload"] if case.memory == "offload" else []), *(["--weights", "int8"] if case.weights == "int8" else [])]


def our_pictures(rocm_sd, case: Case, model, loras, nets, unions, image_adapters, seen, own: Pictures, folder):
    kind, batch = base_of(case), int(case.batch)
    args = ["--plain-prompt", "--batch", batch, *computed(case)]
    for name, unet, text in LORA_WEIGHTS[case.lora]:
        blocks = ":lbw=" + ",".join(f"{value:g}" for value in block_factors(kind).values()) if case.applied == "blocks" else ""
        args += ["--lora", f"{loras(kind, name)}:{unet}:{text}{blocks}"]
    if case.applied == "runtime":
        args += ["--lora-mode", "runtime"]
    for wanted, net, strength in (("net", 0, CONTROL_STRENGTH), ("adapter", 1, ADAPTER_STRENGTH)):
        if case.control in (wanted, "both"):
            args += ["--control", nets(kind)[net], "--control-image", own.hint, "--control-strength", strength]
    if case.control == "union":
        args += ["--control", unions(kind), "--control-type", "canny", "--control-image", own.hint, "--control-strength", CONTROL_STRENGTH]
    if case.ip != "none":
        args += ["--ip-adapter", image_adapters(kind, case.ip), "--ip-image", seen, "--ip-weight", IP_WEIGHT]
    if case.guidance == "regions":
        args += ["--region-base", REGION_BASE, *(word for box, text in REGIONS.items() for word in ("--region", ",".join(map(str, box)) + ": " + text))]
    elif case.guidance == "attention":
        args += ["--sag-scale", ATTENTION_SCALE]
    if case.start != "noise":
        args += ["-i", own.init, "--strength", STRENGTH]
    if case.start == "mask":
        args += ["--mask", own.mask, "--mask-blur", 0, "--mask-downscale", "nearest", "--mask-blend", "latents"]
    if case.model == "refined":
        args += ["--denoising-end", SPLIT]
    rocm_sd(*command(model(kind), folder / "{index}.png", *args, steps=STEPS, size=side(case)))
    paths = [folder / f"{i + 1}.png" for i in range(batch)]
    if case.model == "refined":
        for path in paths:
            rocm_sd(*command(model("refiner"), path, "--plain-prompt", "--init-latents", path.with_suffix(".safetensors"),
                             "--denoising-start", SPLIT, *computed(case), steps=STEPS, size=None))
    return [read_picture(path) for path in paths]


# --- the tests ---

def marked(cases: list[Case]) -> list:
    """The first few on the CPU in every run, the others at night; the seed in the name."""
    quick = [case for case in cases if case.device == "cpu"][:QUICK]
    return [pytest.param(case, id=f"seed{CASES_SEED}-{i:02}-{case.name()}", marks=[] if case in quick else [pytest.mark.full])
            for i, case in enumerate(cases)]


@pytest.mark.parametrize("case", marked(draw_cases(CASES, CASES_SEED)))
def test_draws_what_diffusers_draws(rocm_sd, model, loras, nets, unions, image_adapters, seen, pictures, theirs, tmp_path, case):
    own = pictures(side(case))
    got = our_pictures(rocm_sd, case, model, loras, nets, unions, image_adapters, seen, own, tmp_path)
    want = theirs(case, side(case))
    # Outside of the mask the original is put back; Diffusers leaves the decoded picture. A refiner draws all of it.
    whole = np.ones((side(case), side(case)), bool)
    inside = read_picture(own.mask)[..., 0] > 0 if case.start == "mask" and case.model != "refined" else whole
    near = [psnr(a[inside], b[inside]) for a, b in zip(got, want, strict=True)]
    print(case.name(), *(f"{value:.1f} dB" for value in near))
    assert all(b.std() > 5 for b in want), "the oracle's picture is flat: this would prove nothing"
    floor = FLOORS[f"{case.device} {case.weights}"]
    assert min(near) >= (floor if case.is_exact() or case.guidance != "attention" else LEAST_OF_MAPS), near
    if case.guidance == "attention" and not case.is_exact():  # so sensitive that the case in f32 has to stand for it
        exact = replace(case, weights="plain", device="cpu")
        (tmp_path / "exact").mkdir()
        again = our_pictures(rocm_sd, exact, model, loras, nets, unions, image_adapters, seen, own, tmp_path / "exact")
        assert min(psnr(a[inside], b[inside]) for a, b in zip(again, want, strict=True)) >= FLOORS["cpu plain"], "in f32"
    for other in case.without_each():
        assert case.is_exact() or np.mean(near) > np.mean([psnr(a[inside], b[inside]) for a, b in zip(got, theirs(other, side(case)))]) + 3, other.name()


def test_every_pair_comes_up():
    cases = draw_cases(CASES, CASES_SEED)
    assert set().union(*map(pairs_of, cases)) == every_pair() and len(set(cases)) == CASES
    every = sum(len(a) * len(b) for i, a in enumerate(LEVELS.values()) for b in list(LEVELS.values())[i + 1:])
    assert len(every_pair()) == every - len(IMPOSSIBLE)


# --- pairs that are refused: a sentence says so; one that is drawn from now on fails here ---

NET, ADAPTER, HINT, MASK, IMAGE = "NET", "ADAPTER", "HINT", "MASK", "IMAGE"  # stand for files
REFUSED = {
    "adapter and guess mode": ("sd15", ["--control", ADAPTER, "--control-image", HINT, "--control-mode", "guess"], 2, "acts balanced"),
    "adapter and inpaint": ("sd15", ["--control", ADAPTER, "--control-preprocess", "inpaint", "-i", IMAGE, "--mask", MASK], 2, "has no inpaint"),
    "control and the refiner": ("refiner", ["--control", NET, "--control-image", HINT, "-i", IMAGE], 3, "another base model"),
    "adapter and the refiner": ("refiner", ["--control", ADAPTER, "--control-image", HINT, "-i", IMAGE], 3, "another base model"),
    "the base's LoRA and the refiner": ("refiner", ["--lora", "LORA", "-i", IMAGE], 3, "first.safetensors"),
    "a mask and noise": ("sd15", ["--mask", MASK], 2, "mask: needs an init-image"),
}


@pytest.mark.parametrize("pair", REFUSED)
def test_refused_pairs(rocm_sd, model, loras, nets, pictures, tmp_path, pair):
    kind, args, code, sentence = REFUSED[pair]
    made_for = "sdxl" if kind == "refiner" else kind
    net, adapter = nets(made_for)
    own = pictures(64)
    files = {NET: net, ADAPTER: adapter, HINT: own.hint, MASK: own.mask, IMAGE: own.init, "LORA": loras(made_for, "first") if "LORA" in args else None}
    done = rocm_sd(*command(model(kind), tmp_path / "a.png", *(files.get(arg, arg) for arg in args)), code=code)
    assert sentence in done.stderr and not (tmp_path / "a.png").exists()
