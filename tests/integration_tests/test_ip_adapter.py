"""IP-Adapters on whole pictures against Diffusers' pipelines (fp32 on the CPU, >= 60 dB): kinds, several images and adapters, weights, start
and end, masks, embeddings; what goes with them."""

from __future__ import annotations

import json
import shutil

import diffusers
import numpy as np
import pytest
import torch
from control_models import control_folder, drawing
from ip_models import FACE, KINDS, adapter_file, adapter_tensors, encoder_folder, image_encoder
from PIL import Image
from pictures import psnr, read_parameters, read_picture
from safetensors.torch import load_file, save_file
from test_diffusers_pipelines import SIZE, mask, model, ours, picture, same, theirs  # noqa: F401 (fixtures)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Images of other shapes than the encoder's square."""
    folder = tmp_path_factory.mktemp("seen")
    return [drawing(folder / f"{i}.png", *size, seed=i) for i, size in enumerate([(90, 61), (33, 77), (40, 40)])]


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory):  # noqa: F811
    """adapter(base, kind, seed): (model's folder, adapter's file), its image encoder beside it."""
    made = {}

    def make(base="sd15", kind="plain", seed=11):
        if (base, kind, seed) not in made:
            folder, own = model(base), tmp_path_factory.mktemp("adapters")
            encoder_folder(own / "image_encoder")
            unet = diffusers.UNet2DConditionModel.from_pretrained(folder / "unet")
            made[base, kind, seed] = folder, adapter_file(own / "ip.safetensors", kind, unet, image_encoder(), seed)
        return made[base, kind, seed]

    return make


def their_pipe(folder, files, scales, name="DiffusionPipeline", encoder="image_encoder"):
    pipe = getattr(diffusers, name).from_pretrained(folder, torch_dtype=torch.float32)
    pipe.load_ip_adapter([str(file.parent) for file in files], subfolder="", weight_name=[file.name for file in files],
                         image_encoder_folder=encoder)
    pipe.set_ip_adapter_scale(scales if len(scales) > 1 else scales[0])
    return pipe


def opened(path):
    return Image.open(path).convert("RGB")


def face_embeds(images=1, seed=3):
    return torch.randn(1, images, FACE, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("base", ["sd15", "sdxl"])
@pytest.mark.parametrize("kind", KINDS)
def test_draws_what_diffusers_draws(rocm_sd, adapter, seen, tmp_path, base, kind):
    folder, file = adapter(base, kind)
    if kind == "faceid":
        save_file({"image_embeds": face_embeds()}, tmp_path / "face.safetensors")
        pipe = their_pipe(folder, [file], [0.8], encoder=None)
        want = theirs(folder, pipe, ip_adapter_image_embeds=[torch.cat([torch.zeros(1, 1, FACE), face_embeds()])])
        args = ["--ip-embeds", tmp_path / "face.safetensors"]
    else:
        want = theirs(folder, their_pipe(folder, [file], [0.8]), ip_adapter_image=opened(seen[0]))
        args = ["--ip-image", seen[0]]
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--ip-adapter", file, "--ip-weight", 0.8, *args)
    same(got, want)
    assert psnr(want, ours(rocm_sd, folder, tmp_path / "b.png")) < 35, "the adapter changes too little to prove anything"
    assert "IP-Adapter 0: \"Model: ip [" in read_parameters(tmp_path / "a.png")


@pytest.mark.parametrize("base, version", [("sd15", 1), ("sd15", 2), ("sdxl", 2)])
def test_faceid_plus(rocm_sd, adapter, seen, tmp_path, base, version):
    """Faces' embeddings beside their pictures, one and two of them; the second version is told by the file's name, and inspected."""
    folder, made = adapter(base, "faceid-plus")
    file = made.parent / f"ip-adapter-faceid-plus{'v2' if version == 2 else ''}_x.safetensors"
    shutil.copy(made, file)
    drawn = []
    for count in (1, 2):
        ids = face_embeds(count)
        save_file({"image_embeds": ids}, tmp_path / "face.safetensors")
        pipe = their_pipe(folder, [file], [0.8])
        layer = pipe.unet.encoder_hid_proj.image_projection_layers[0]
        layer.shortcut = version == 2
        states = pipe.prepare_ip_adapter_image_embeds([[opened(image) for image in seen[:count]]], None, "cpu", 1, True)[0]
        layer.clip_embeds = states
        want = theirs(folder, pipe, ip_adapter_image_embeds=[torch.cat([torch.zeros_like(ids), ids])])
        images = ",".join(map(str, [*seen[:count], tmp_path / "face.safetensors"]))
        got = ours(rocm_sd, folder, tmp_path / "a.png", "--ip-adapter", file, "--ip-weight", 0.8, "--ip-image", images)
        same(got, want)
        drawn.append(got)
    assert psnr(drawn[0], drawn[1]) < 45 and psnr(drawn[0], ours(rocm_sd, folder, tmp_path / "b.png")) < 35
    other = shutil.copy(made, tmp_path / f"plus{'' if version == 2 else 'v2'}.safetensors")
    encoder = ["--image-encoder", made.parent / "image_encoder"]
    args = ["--ip-adapter", other, "--ip-weight", 0.8, "--ip-image", images, *encoder]
    assert psnr(ours(rocm_sd, folder, tmp_path / "c.png", *args), drawn[1]) < 50, "the versions draw the same"
    assert "FaceID Plus" in rocm_sd("inspect", file).stdout


@pytest.mark.bad_input
def test_faceid_plus_reads_both(rocm_sd, adapter, seen, tmp_path):
    from test_diffusers_pipelines import command

    folder, file = adapter("sd15", "faceid-plus")
    face, wide = tmp_path / "face.safetensors", tmp_path / "wide.safetensors"
    save_file({"image_embeds": face_embeds(2)}, face)
    save_file({"image_embeds": torch.randn(1, 1, FACE + 1)}, wide)
    plain = adapter("sd15", "plain")[1]
    for own, args, expected in [(file, ["--ip-image", seen[0]], "expected the face's picture and a face model's embedding"),
                                (file, ["--ip-embeds", face], "got the embedding alone"),
                                (file, ["--ip-image", f"{seen[0]},{face}"], "for each of the 1 images, got 2"),
                                (file, ["--ip-image", f"{seen[0]},{wide}"], f"embeddings [images,{FACE}]"),
                                (plain, ["--ip-image", f"{seen[0]},{face}"], "expected one of them, got several")]:
        done = rocm_sd(*command(folder, tmp_path / "no.png"), "--ip-adapter", own, *args, code=2)
        assert expected in done.stderr, done.stderr
    tensors = load_file(file)
    tensors["image_proj.proj.2.weight"] = tensors["image_proj.proj.2.weight"][:-1].contiguous()
    save_file(tensors, tmp_path / "bad.safetensors")
    done = rocm_sd(*command(folder, tmp_path / "no.png"), "--ip-adapter", tmp_path / "bad.safetensors", "--ip-image", f"{seen[0]},{face}", code=3)
    assert "image_proj.proj.2.weight: expected a multiple of" in done.stderr, done.stderr


def test_a_weight_of_nothing_is_the_plain_picture(rocm_sd, adapter, seen, tmp_path):
    """A weight of 0 is the plain UNet's program, a tiny one the whole computation."""
    folder, file = adapter()
    plain = ours(rocm_sd, folder, tmp_path / "a.png")
    for weight in ("0", "0.000000001"):
        got = ours(rocm_sd, folder, tmp_path / "b.png", "--ip-adapter", file, "--ip-image", seen[0], "--ip-weight", weight)
        assert psnr(got, plain) >= 60
    assert np.array_equal(ours(rocm_sd, folder, tmp_path / "c.png", "--ip-adapter", file, "--ip-image", seen[0], "--ip-weight", "0"), plain)


@pytest.mark.parametrize("kind", ["plain", "plus"])
def test_several_images_of_one_adapter(rocm_sd, adapter, seen, tmp_path, kind):
    folder, file = adapter("sd15", kind)
    want = theirs(folder, their_pipe(folder, [file], [0.6]), ip_adapter_image=[[opened(s) for s in seen]])
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--ip-adapter", file, "--ip-weight", 0.6, "--ip-image", ",".join(map(str, seen)))
    same(got, want)
    assert psnr(got, ours(rocm_sd, folder, tmp_path / "b.png", "--ip-adapter", file, "--ip-weight", 0.6, "--ip-image", seen[0])) < 50


def test_several_adapters(rocm_sd, adapter, seen, tmp_path):
    """Of two kinds, with weights and images of their own; the first option belongs to the first adapter."""
    (folder, first), (_, second) = adapter("sd15", "plain"), adapter("sd15", "plus")
    pipe = their_pipe(folder, [first, second], [0.4, 0.9])
    want = theirs(folder, pipe, ip_adapter_image=[opened(seen[1]), [opened(seen[0]), opened(seen[2])]])
    got = ours(rocm_sd, folder, tmp_path / "a.png", "--ip-adapter", first, "--ip-adapter", second, "--ip-weight", 0.4, "--ip-weight", 0.9,
               "--ip-image", seen[1], "--ip-image", f"{seen[0]},{seen[2]}")
    same(got, want)


@pytest.mark.parametrize("start, end", [(0, 0.5), (0.4, 1), (0.25, 0.75)])
def test_start_and_end(rocm_sd, adapter, seen, tmp_path, start, end):
    """By the rule of ControlNets: step i of n counts where i / n >= start and (i + 1) / n <= end."""
    folder, file = adapter()
    steps, acts = 4, lambda i: i / 4 >= start and (i + 1) / 4 <= end
    pipe = their_pipe(folder, [file], [0.8 if acts(0) else 0.0])

    def switch(pipe, i, t, kwargs):
        pipe.set_ip_adapter_scale(0.8 if acts(i + 1) else 0.0)
        return kwargs

    want = theirs(folder, pipe, ip_adapter_image=opened(seen[0]), num_inference_steps=steps, callback_on_step_end=switch)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--ip-adapter", file, "--ip-image", seen[0], "--ip-weight", 0.8, "--ip-start", start,
              "--ip-end", end, steps=steps), want)


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    """Two masks with grey parts, the first of the picture's size, the second of another."""
    folder, out = tmp_path_factory.mktemp("regions"), []
    for i, (width, height) in enumerate([(SIZE, SIZE), (100, 80)]):
        values = np.tile(np.linspace(0, 255, width), (height, 1))
        values[: height // 3] = 255 - values[: height // 3]
        out.append(folder / f"{i}.png")
        Image.fromarray((values if i == 0 else values[:, ::-1]).astype(np.uint8)).save(out[-1])
    return out


@pytest.mark.parametrize("kind, size", [("plain", (SIZE, SIZE)), ("plus", (SIZE, SIZE)), ("plain", (88, 72))])
def test_masks(rocm_sd, adapter, seen, regions, tmp_path, kind, size):
    """A mask for each image, at a size whose maps are halved upwards, too."""
    folder, file = adapter("sd15", kind)
    width, height = size
    masks = diffusers.image_processor.IPAdapterMaskProcessor().preprocess([Image.open(r) for r in regions], height=height, width=width)
    images = seen[:2]
    want = theirs(folder, their_pipe(folder, [file], [0.9]), ip_adapter_image=[[opened(s) for s in images]], width=width, height=height,
                  cross_attention_kwargs={"ip_adapter_masks": [masks.reshape(1, 2, height, width)]})
    args = ["-W", width, "-H", height, "--ip-adapter", file, "--ip-weight", 0.9, "--ip-image", ",".join(map(str, images))]
    got = ours(rocm_sd, folder, tmp_path / "a.png", *args, "--ip-mask", ",".join(map(str, regions)), size=None)
    same(got, want)
    assert psnr(got, ours(rocm_sd, folder, tmp_path / "b.png", *args, size=None)) < 50


def test_embeddings_in_place_of_images(rocm_sd, adapter, seen, tmp_path):
    """What Diffusers' pipeline prepares of images, those of the negative prompt first, for an adapter that reads states."""
    folder, file = adapter("sd15", "plus")
    pipe = their_pipe(folder, [file], [0.8])
    embeds = pipe.prepare_ip_adapter_image_embeds([[opened(seen[0]), opened(seen[1])]], None, "cpu", 1, True)[0]
    save_file({"anything": embeds.contiguous()}, tmp_path / "e.safetensors")
    want = ours(rocm_sd, folder, tmp_path / "a.png", "--ip-adapter", file, "--ip-weight", 0.8, "--ip-image", f"{seen[0]},{seen[1]}")
    same(ours(rocm_sd, folder, tmp_path / "b.png", "--ip-adapter", file, "--ip-weight", 0.8, "--ip-embeds", tmp_path / "e.safetensors"), want)


def test_batches(rocm_sd, adapter, seen, tmp_path):
    """The images of a true batch are those of single runs with their seeds."""
    folder, file = adapter("sd15", "plus")
    args = ["--ip-adapter", file, "--ip-image", seen[0]]
    ours(rocm_sd, folder, tmp_path / "b{index}.png", *args, "--batch", 2)
    both = sorted(tmp_path.glob("b*.png"))
    assert len(both) == 2
    same(read_picture(both[0]), ours(rocm_sd, folder, tmp_path / "one.png", *args))
    same(read_picture(both[1]), ours(rocm_sd, folder, tmp_path / "two.png", *args, "--seed", 8))


@pytest.mark.parametrize("kind", ["plain", "plus"])
def test_images_of_each_image_of_a_batch(rocm_sd, adapter, seen, tmp_path, kind):
    """A folder: each image of the batch is the single run with its seed and its own picture. Beside it an adapter that all share."""
    (folder, file), (_, other) = adapter("sd15", kind), adapter("sd15", "plus", 13)
    own = tmp_path / "own"
    own.mkdir()
    for i, path in enumerate((seen[2], seen[0], seen[1])):
        (own / f"{i}.png").write_bytes(path.read_bytes())
    args = ["--ip-adapter", file, "--ip-weight", 0.8, "--ip-adapter", other, "--ip-weight", 0.3]
    ours(rocm_sd, folder, tmp_path / "b{index}.png", *args, "--ip-image", own, "--ip-image", seen[1], "--batch", 3)
    drawn = [read_picture(tmp_path / f"b{i + 1}.png") for i in range(3)]
    alone = [ours(rocm_sd, folder, tmp_path / "one.png", *args, "--ip-image", own / f"{i}.png", "--ip-image", seen[1], "--seed", 7 + i)
             for i in range(3)]
    for i in range(3):
        same(drawn[i], alone[i])
    shared = ours(rocm_sd, folder, tmp_path / "shared.png", *args, "--ip-image", own / "0.png", "--ip-image", seen[1], "--seed", 8)
    assert psnr(drawn[1], shared) < 50, "the pictures make no difference"


@pytest.mark.parametrize("args, floor", [(["--weights", "int8"], 28), (["--dtype", "bf16"], 33), (["--offload"], 200)])
def test_with(rocm_sd, adapter, seen, tmp_path, args, floor):
    folder, file = adapter("sd15", "plus")
    units = ["--ip-adapter", file, "--ip-image", seen[0]]
    want = ours(rocm_sd, folder, tmp_path / "a.png", *units)
    got = ours(rocm_sd, folder, tmp_path / "b.png", *units, *args)
    assert np.array_equal(got, want) if floor == 200 else psnr(got, want) >= floor


def test_image_to_image_beside_a_controlnet(rocm_sd, adapter, seen, picture, tmp_path):  # noqa: F811
    folder, file = adapter()
    net = control_folder(folder, tmp_path / "net")
    hint = drawing(tmp_path / "hint.png", SIZE, SIZE, seed=9)
    pipe = diffusers.StableDiffusionControlNetImg2ImgPipeline.from_pretrained(
        folder, controlnet=diffusers.ControlNetModel.from_pretrained(net), torch_dtype=torch.float32)
    pipe.load_ip_adapter(str(file.parent), subfolder="", weight_name=file.name)
    pipe.set_ip_adapter_scale(0.7)
    want = theirs(folder, pipe, image=opened(picture), control_image=opened(hint), strength=0.7, controlnet_conditioning_scale=0.6,
                  ip_adapter_image=opened(seen[0]), num_inference_steps=5)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "-i", picture, "--strength", 0.7, "--control", net, "--control-image", hint,
              "--control-strength", 0.6, "--ip-adapter", file, "--ip-image", seen[0], "--ip-weight", 0.7, steps=5), want)


def test_without_guidance(rocm_sd, adapter, seen, tmp_path):
    folder, file = adapter("sd15", "plus")
    want = theirs(folder, their_pipe(folder, [file], [0.8]), ip_adapter_image=opened(seen[0]), guidance_scale=1.0)
    same(ours(rocm_sd, folder, tmp_path / "a.png", "--ip-adapter", file, "--ip-image", seen[0], "--ip-weight", 0.8, scale=1), want)


def test_the_image_encoder(rocm_sd, adapter, seen, tmp_path):
    """Named, or the model's own where there is none beside the adapter."""
    folder, file = adapter()
    want = ours(rocm_sd, folder, tmp_path / "a.png", "--ip-adapter", file, "--ip-image", seen[0], steps=1)
    alone = tmp_path / "alone" / "ip.safetensors"
    alone.parent.mkdir()
    alone.write_bytes(file.read_bytes())
    named = ours(rocm_sd, folder, tmp_path / "b.png", "--ip-adapter", alone, "--ip-image", seen[0], "--image-encoder",
                 file.parent / "image_encoder", steps=1)
    assert np.array_equal(named, want)
    own = shutil.copytree(folder, tmp_path / "model")
    shutil.copytree(file.parent / "image_encoder", own / "image_encoder")
    assert np.array_equal(ours(rocm_sd, own, tmp_path / "c.png", "--ip-adapter", alone, "--ip-image", seen[0], steps=1), want)


# --- bad input ---

@pytest.mark.parametrize("kind, shown", [
    ("plain", "plain; reads an image's embedding 24 wide, makes 4 tokens"), ("plus", "Plus; reads states 32 wide, makes 4 tokens"),
    ("faceid-plus", f"FaceID Plus; reads states and a face's embedding {FACE} wide, makes 4 tokens"),
    ("full", "Full; reads states 32 wide, makes a token of each"), ("faceid", f"FaceID; reads a face's embedding {FACE} wide, makes 4 tokens")])
def test_inspect(rocm_sd, adapter, tmp_path, kind, shown):
    folder, file = adapter("sd15", kind)
    text = rocm_sd("inspect", file).stdout
    layers = sum(name.endswith("to_k_ip.weight") for name in load_file(file))
    assert "an IP-Adapter" in text and f"{shown}, {layers} cross attentions" in text and "problem" not in text, text
    report = json.loads(rocm_sd("inspect", "--json", file).stdout)["ip_adapter"]
    assert report["cross_attentions"] == layers and report["lora_tensors"] == 0 and report["text_width"] == 64
    encoder = rocm_sd("inspect", file.parent / "image_encoder").stdout
    assert "a CLIP image encoder" in encoder and "width 32, 4 layers, patches of 8 pixels, embeddings 24 wide" in encoder, encoder
    tensors = load_file(file) | {"ip_adapter.0.to_q_lora.down.weight": torch.zeros(2, 32)}
    save_file(tensors, tmp_path / "face.safetensors")
    assert "1 tensors of a LoRA" in rocm_sd("inspect", tmp_path / "face.safetensors").stdout


BAD = ["nan", "another base", "shape", "unknown", "missing", "lora", "no adapter", "no encoder", "narrow encoder", "no image", "face image",
       "folder", "masks", "too few for the batch", "embeds", "weight", "interval", "text as image", "broken encoder"]


@pytest.mark.bad_input
@pytest.mark.parametrize("case", BAD)
def test_bad_input(rocm_sd, adapter, seen, tmp_path, case):
    """Each error names the thing, what was expected and what came."""
    from test_diffusers_pipelines import command

    folder, file = adapter("sd15", "faceid" if case == "face image" else "plain")
    unet = diffusers.UNet2DConditionModel.from_pretrained(folder / "unet")
    tensors = adapter_tensors("plain", unet, image_encoder())
    key = "ip_adapter.3.to_v_ip.weight"
    bad, image, more = tmp_path / "bad.safetensors", ["--ip-image", seen[0]], []
    encoder = ["--image-encoder", file.parent / "image_encoder"]
    code = 3
    if case == "nan":
        tensors[key][0, 0] = float("nan")
        expected = [key, "1 of", "not finite"]
    elif case == "another base":
        bad.write_bytes(adapter("sdxl")[1].read_bytes())
        expected = ["made for another base model than this sd1 one", "wide, the model's"]
    elif case == "shape":
        tensors[key] = tensors[key][:, :-1].contiguous()
        expected = [key, "expected [", "]"]
    elif case == "unknown":
        tensors["image_proj.extra.weight"] = torch.zeros(3)
        expected = ["1 tensor has no place in an IP-Adapter", "image_proj.extra.weight"]
    elif case == "missing":
        del tensors[key]
        expected = ["1 of", "expected tensors is missing", key]
    elif case == "lora":
        tensors["ip_adapter.0.to_q_lora.down.weight"] = torch.zeros(2, 32)
        expected = ["LoRA of a FaceID adapter", "--lora", "to_q_lora.down.weight"]
    elif case == "no adapter":
        tensors = {"model.weight": torch.zeros(3)}
        expected = ["expected an IP-Adapter", "model.weight"]
    elif case == "no encoder":
        encoder, code, expected = [], 2, ["image-encoder", "reads embeddings 24 wide", "no such folder"]
    elif case == "narrow encoder":
        encoder, code = ["--image-encoder", encoder_folder(tmp_path / "narrow", projection=20)], 2
        expected = ["its embedding is 20 wide, the adapter reads 24"]
    elif case == "broken encoder":
        made = image_encoder()
        made.save_pretrained(tmp_path / "broken")
        state = {k: v for k, v in made.state_dict().items() if "fc1.bias" not in k}
        save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "broken" / "model.safetensors")
        encoder, expected = ["--image-encoder", tmp_path / "broken"], ["image encoder of", "missing", "vision_model.encoder.layers.0.mlp.fc1.bias"]
    elif case == "no image":
        image, code, expected = [], 2, ["ip-image, ip-embeds", "expected one of them, got none"]
    elif case == "face image":
        bad.write_bytes(file.read_bytes())
        code, expected = 2, ["FaceID", "expected it as ip-embeds, got an image"]
    elif case == "folder":
        bad.mkdir()
        expected = ["expected a .safetensors file, got a folder"]
    elif case == "masks":
        more, code, expected = ["--ip-mask", f"{seen[0]},{seen[1]}"], 2, ["ip-mask", "expected one for each of the 1 images, got 2"]
    elif case == "too few for the batch":
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "a.png").write_bytes(seen[0].read_bytes())
        image, more = ["--ip-image", tmp_path / "own"], ["--batch", "2"]
        code, expected = 2, ["ip-image", "expected images for each of the 2 images of the batch, got those of 1"]
    elif case == "embeds":
        save_file({"e": torch.zeros(1, 25)}, tmp_path / "e.safetensors")
        image, code, expected = ["--ip-embeds", tmp_path / "e.safetensors"], 2, ["ip-embeds", "expected embeddings [images,24]", "got [1,25]"]
    elif case == "weight":
        more, code, expected = ["--ip-weight", "nan"], 2, ["ip-weight: expected a number from -10 to 10"]
    elif case == "interval":
        more, code, expected = ["--ip-start", "0.5", "--ip-end", "0.5"], 2, ["ip-start, ip-end: expected the first below the second"]
    elif case == "text as image":
        (tmp_path / "x.png").write_text("no image")
        image, expected = ["--ip-image", tmp_path / "x.png"], ["x.png"]
    if not bad.exists():
        save_file(tensors, bad)
    done = rocm_sd(*command(folder, tmp_path / "out.png", "--ip-adapter", bad, *image, *encoder, *more, steps=1), code=code)
    for part in expected:
        assert part in done.stderr, (part, done.stderr)
    assert not (tmp_path / "out.png").exists()
