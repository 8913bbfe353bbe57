"""Upscalers against PyTorch: networks with random weights in every form of their files, odd sizes, windows, several passes, filters."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from pictures import psnr, read_parameters, read_picture
from PIL import Image, PngImagePlugin
from torch_ops import load_package
from upscaler_models import CompactNet, RrdbNet, SpanNet, SwinIr, enlarged, older_names, oldest_names, randomised, written

NETS = {
    "x4": lambda: RrdbNet(),
    "x2": lambda: RrdbNet(unshuffle=2),
    "x1": lambda: RrdbNet(unshuffle=4, blocks=1),
    "anime 6B": lambda: RrdbNet(features=24, growth=12, blocks=3),
    "x8": lambda: RrdbNet(blocks=1, doublings=3),
    "compact x4": lambda: CompactNet(),
    "compact x2": lambda: CompactNet(factor=2, features=24, convolutions=2),
    "compact x1": lambda: CompactNet(factor=1),
    "span x4": lambda: SpanNet(),
    "span x2 plain": lambda: SpanNet(factor=2, features=20, normalised=False),
    "span x1": lambda: SpanNet(factor=1, features=12),
    "swinir classical x2": lambda: SwinIr(),
    "swinir classical x3": lambda: SwinIr(factor=3, embed_norm=False),
    "swinir classical x4": lambda: SwinIr(factor=4, depths=(1, 2)),
    "swinir light x4": lambda: SwinIr("pixelshuffledirect", factor=4, width=20),
    "swinir real x4": lambda: SwinIr("nearest+conv", factor=4, three=True),
    "swinir real x2": lambda: SwinIr("nearest+conv", depths=(2,)),
    "swinir denoise": lambda: SwinIr("", factor=1),
    "swinir jpeg": lambda: SwinIr("", factor=1, window=7),
}


def picture(width: int, height: int, seed: int = 1) -> np.ndarray:
    """Smooth colours with noise upon them, so that neighbouring pixels are alike and none are the same."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(coarse, np.int16) + rng.integers(-20, 21, (height, width, 3)), 0, 255).astype(np.uint8)


@pytest.fixture
def upscale(rocm_sd, tmp_path):
    """upscale(file, pixels, *options) -> pixels."""

    def run(file, pixels: np.ndarray, *options, code: int = 0):
        source, target = tmp_path / "in.png", tmp_path / "out.png"
        Image.fromarray(pixels).save(source)
        done = rocm_sd("upscale", source, "--upscaler", file, "-o", target, "--device", "cpu", "-q", *options, code=code)
        return read_picture(target) if code == 0 else done.stderr

    return run


def near(got: np.ndarray, want: np.ndarray) -> None:
    """An error of e of 255 rounds a share of 2 e of the values to the other side: one in a hundred is an error of 0.005, 94 dB."""
    assert got.shape == want.shape and np.std(want) > 4  # the oracle drew something
    assert np.abs(got - want).max() <= 0.51 and np.mean(got != np.rint(want)) < 0.01


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("width, height", [(33, 21), (16, 40), (5, 64)])
def test_networks(upscale, tmp_path, name, width, height):
    net = randomised(NETS[name]())
    pixels = picture(width, height)
    want = enlarged(net, pixels)
    got = upscale(written(tmp_path / "net.safetensors", net.state_dict()), pixels)
    near(got, want)


@pytest.mark.parametrize("name", NETS)
def test_one_pixel(upscale, tmp_path, name):
    """Where pixels are taken together there is but the pixel itself to fill the square with."""
    net = randomised(NETS[name]())
    side, pixel = getattr(net, "unshuffle", 1), np.array([[[90, 160, 30]]], np.uint8)
    want = enlarged(net, np.broadcast_to(pixel, (side, side, 3)).copy())[:net.factor, :net.factor]
    got = upscale(written(tmp_path / "net.safetensors", net.state_dict()), pixel)
    assert got.shape == want.shape and np.abs(got - want).max() <= 0.51


@pytest.mark.parametrize("form", ["params_ema", "params", "plain", "older", "oldest", "half", "module", "legacy"])
def test_files(upscale, tmp_path, form):
    net = randomised(RrdbNet())
    if form == "half":
        net = net.half().float()
    state, pixels = net.state_dict(), picture(19, 14)
    if form == "legacy":
        path = tmp_path / "net.pth"
        torch.save({"params_ema": state, "params": randomised(RrdbNet(), 5).state_dict()}, path, _use_new_zipfile_serialization=False)
    else:
        names = {"older": older_names, "oldest": lambda s: oldest_names(s, 2, 2), "half": lambda s: {k: v.half() for k, v in s.items()},
                 "module": lambda s: {"module." + k: v for k, v in s.items()}}.get(form, lambda s: s)
        path = written(tmp_path / "net.pth", names(state), form if form.startswith("params") else "")
    near(upscale(path, pixels), enlarged(net, pixels))


@pytest.mark.parametrize("form", ["merged", "module", "params", "half"])
def test_files_of_span(upscale, tmp_path, form):
    """The merged convolutions alone; DataParallel's names; torch.save; f16. Stale merged ones beside the others are not read."""
    net = randomised(SpanNet(factor=2))
    if form == "half":
        net = net.half().float()
    state, pixels = net.merged() if form == "merged" else net.state_dict(), picture(19, 14)
    state = {"module." + k if form == "module" else k: v.half() if form == "half" else v for k, v in state.items()}
    path = written(tmp_path / ("net.pth" if form == "params" else "net.safetensors"), state, form if form == "params" else "")
    near(upscale(path, pixels), enlarged(net, pixels))


def test_windows_of_span(upscale, tmp_path):
    """A pixel of the result looks 21 pixels far: windows that share four times as many give the picture itself."""
    net = randomised(SpanNet(factor=2, features=8))
    path, pixels = written(tmp_path / "net.safetensors", net.state_dict()), picture(230, 190)
    whole = upscale(path, pixels, "--tile", 0)
    near(whole, enlarged(net, pixels))
    # Convolutions of another size may sum in another order.
    difference = np.abs(upscale(path, pixels, "--tile", 180, "--tile-overlap", 84).astype(int) - whole)
    assert difference.max() <= 1 and (difference > 0).mean() < 0.001
    assert psnr(upscale(path, pixels, "--tile", 64, "--tile-overlap", 32).astype(float), whole.astype(float)) > 40


def test_bad_span(upscale, tmp_path):
    pixels, state = picture(20, 20), randomised(SpanNet(factor=2, features=8)).state_dict()

    def refused(changed: dict, *words: str) -> None:
        text = upscale(written(tmp_path / "bad.safetensors", {k: v for k, v in changed.items() if v is not None}), pixels, code=3)
        assert all(word in text for word in words), text

    refused(state | {"block_3.c2_r.conv.0.weight": None}, "block_3.c2_r.conv.0.weight")
    refused(state | {"block_3.c2_r.sk.bias": None}, "block_3.c2_r.sk.bias")
    refused({k: v for k, v in state.items() if not k.startswith("block_5.")}, "block_5.c1_r")
    refused(state | {"block_7.c1_r.sk.weight": torch.zeros(8, 8, 1, 1)}, "no place", "block_7.c1_r.sk.weight")
    refused(state | {"block_1.c1_r.conv.1.weight": torch.zeros(16, 15, 3, 3)}, "block_1.c1_r.conv.1.weight", "16", "15")
    refused(state | {"block_1.c1_r.conv.2.weight": torch.zeros(9, 16, 1, 1), "block_1.c1_r.conv.2.bias": torch.zeros(9)}, "block_1.c1_r", "8", "9")
    refused(state | {"block_1.c1_r.conv.1.weight": torch.zeros(16, 16, 1, 1)}, "block_1.c1_r.conv.1.weight", "[16,16,1,1]")
    refused(state | {"conv_cat.weight": torch.zeros(8, 24, 1, 1)}, "conv_cat.weight", "[8,24,1,1]")
    refused(state | {"upsampler.0.weight": torch.zeros(13, 8, 3, 3), "upsampler.0.bias": torch.zeros(13)}, "upsampler.0.weight", "13")
    refused(state | {"conv_1.sk.weight": torch.zeros(1024, 3, 1, 1)}, "conv_1.sk.weight", "512")
    refused(state | {"conv_2.conv.2.bias": torch.full((8,), float("inf"))}, "conv_2", "not finite")


def test_windows_leave_no_seam(upscale, tmp_path):
    """Windows whose overlap is four times what the network looks around itself give the picture itself; narrower ones no step at their
    edges that the whole picture has not."""
    net = randomised(CompactNet(factor=2, convolutions=2))
    path, pixels = written(tmp_path / "net.safetensors", net.state_dict()), picture(121, 83)
    whole = upscale(path, pixels, "--tile", 0)
    assert np.array_equal(upscale(path, pixels, "--tile", 48, "--tile-overlap", 16), whole)
    near(whole, enlarged(net, pixels))
    deep = randomised(RrdbNet(blocks=2))
    path = written(tmp_path / "deep.safetensors", deep.state_dict())
    whole, tiled = upscale(path, pixels, "--tile", 0).astype(float), upscale(path, pixels, "--tile", 48, "--tile-overlap", 24).astype(float)
    assert psnr(tiled, whole) > 45
    hard = upscale(path, pixels, "--tile", 48, "--tile-overlap", 0).astype(float)
    assert psnr(hard, whole) < psnr(tiled, whole)  # without an overlap the edges are seen
    steps = np.abs(np.diff(tiled - whole, axis=1)).mean(axis=(0, 2))
    assert steps.max() < 2 + 4 * np.median(steps)


@pytest.mark.parametrize("unshuffle", [1, 2])
def test_windows_of_odd_sizes(upscale, tmp_path, unshuffle):
    net = randomised(RrdbNet(unshuffle=unshuffle, blocks=1))
    path, pixels = written(tmp_path / "net.safetensors", net.state_dict()), picture(151, 67)
    whole = upscale(path, pixels, "--tile", 0)
    assert psnr(upscale(path, pixels, "--tile", 65, "--tile-overlap", 32).astype(float), whole.astype(float)) > 48


@pytest.mark.parametrize("options, size", [(("--factor", 3), (57, 42)), (("--factor", 16), (304, 224)), (("-W", 100), (100, 73)),
                                           (("-W", 50, "-H", 60), (50, 60)), (("--factor", 0.5), (9, 7))])
def test_sizes(upscale, tmp_path, options, size):
    """Passes with 8 bits between them until the size is reached, then Lanczos: Pillow's."""
    net = randomised(CompactNet())
    path, pixels = written(tmp_path / "net.safetensors", net.state_dict()), picture(19, 14)
    want = pixels
    while want.shape[1] < size[0] or want.shape[0] < size[1]:
        want = np.rint(enlarged(net, want)).astype(np.uint8)
    want = np.asarray(Image.fromarray(want).resize(size, Image.Resampling.LANCZOS))
    got = upscale(path, pixels, *options)
    assert got.shape == want.shape
    assert psnr(got.astype(float), want.astype(float)) > 50  # a value at .5 may round to either side between passes


@pytest.mark.parametrize("name", ["lanczos", "bicubic", "nearest"])
@pytest.mark.parametrize("size", [(40, 30), (7, 61)])
def test_filters(upscale, name, size):
    pixels = picture(23, 17)
    want = np.asarray(Image.fromarray(pixels).resize(size, getattr(Image.Resampling, name.upper())))
    assert np.array_equal(upscale(name, pixels, "-W", size[0], "-H", size[1]), want)


def test_bf16_and_transparency(rocm_sd, tmp_path):
    net = randomised(RrdbNet())
    path, pixels = written(tmp_path / "net.safetensors", net.state_dict()), picture(20, 12)
    alpha = np.linspace(0, 255, 240).reshape(12, 20).astype(np.uint8)
    Image.fromarray(np.dstack([pixels, np.full_like(alpha, 255)])).save(tmp_path / "opaque.png")
    Image.fromarray(np.dstack([pixels, alpha])).save(tmp_path / "clear.png")
    for name in ("opaque", "clear"):
        rocm_sd("upscale", tmp_path / f"{name}.png", "--upscaler", path, "--device", "cpu", "--dtype", "bf16", "-o", tmp_path / f"{name}4.png")
    assert psnr(read_picture(tmp_path / "opaque4.png").astype(float), enlarged(net, pixels)) > 30
    assert Image.open(tmp_path / "clear4.png").size == (80, 48)


def test_parameters_are_kept(rocm_sd, tmp_path):
    text = PngImagePlugin.PngInfo()
    text.add_text("parameters", "a cat\nSteps: 20, Seed: 1")
    Image.fromarray(picture(64, 64)).save(tmp_path / "a.png", pnginfo=text)
    done = rocm_sd("upscale", tmp_path / "a.png", "--upscaler", "Lanczos", "--factor", 1.5, "-o", tmp_path / "b.webp")
    assert "64 x 64 to 96 x 96" in done.stderr
    assert read_parameters(tmp_path / "b.webp") == "a cat\nSteps: 20, Seed: 1"


def test_bad_input(upscale, tmp_path):
    pixels, net = picture(20, 20), randomised(RrdbNet())
    state = net.state_dict()
    good = written(tmp_path / "good.safetensors", state)

    def refused(changed: dict, *words: str, code: int = 3) -> None:
        text = upscale(written(tmp_path / "bad.safetensors", changed), pixels, code=code)
        assert all(word in text for word in words), text

    refused({k: v for k, v in state.items() if k != "body.1.rdb2.conv3.weight"}, "missing", "body.1.rdb2.conv3.weight")
    refused(state | {"extra.weight": torch.zeros(3)}, "no place", "extra.weight")
    refused({"layers.0.norm.weight": torch.zeros(3)}, "expected an upscaler", "layers.0.norm.weight")
    refused(state | {"conv_body.weight": torch.zeros(16, 8, 3, 3)}, "conv_body.weight")
    refused(state | {"conv_first.weight": torch.zeros(16, 5, 3, 3)}, "conv_first.weight", "5")
    refused(state | {"conv_hr.bias": torch.full((16,), float("nan"))}, "conv_hr.bias", "not finite")
    refused({f"body.{2 * i}.weight": torch.zeros(8, 3, 3, 3) for i in range(2)}, "PReLU")
    huge = {k: v * (1e30 if "conv" in k else 1) for k, v in state.items()}
    refused(huge, "not finite", code=1)
    assert "no such file" in upscale(tmp_path / "none.pth", pixels, code=3)
    (tmp_path / "text.pth").write_text("hello")
    upscale(tmp_path / "text.pth", pixels, code=3)
    for options, word in ((("--factor", 65), "64"), (("--tile", 8), "16"), (("--tile", 64, "--tile-overlap", 33), "32"),
                          (("--factor", 2, "-W", 30), "factor"), (("-W", 0), "width"), (("--dtype", "f16"), "CPU"), (("--dtype", "x"), "bf16")):
        assert word in upscale(good, pixels, *options, code=2)


@pytest.mark.parametrize("form", ["params", "module", "half"])
def test_files_of_swinir(upscale, tmp_path, form):
    """The authors' file; DataParallel's names; f16. Masks and indices, which follow from the sizes, may be there or not."""
    net = randomised(SwinIr())
    if form == "half":
        net = net.half().float()
    state, pixels = net.state_dict(), picture(19, 14)
    names = {"half": lambda s: {k: v.half() for k, v in s.items() if "attn_mask" not in k and "index" not in k},
             "module": lambda s: {"module." + k: v for k, v in s.items()}}.get(form, lambda s: s)
    near(upscale(written(tmp_path / "net.pth", names(state), "params" if form == "params" else ""), pixels), enlarged(net, pixels))


def test_bad_files_of_swinir(upscale, rocm_sd, tmp_path):
    pixels, state = picture(20, 20), randomised(SwinIr()).state_dict()
    table = "layers.0.residual_group.blocks.0.attn.relative_position_bias_table"

    def refused(changed: dict, *words: str) -> None:
        text = upscale(written(tmp_path / "bad.safetensors", changed), pixels, code=3)
        assert all(word in text for word in words), text

    refused({k: v for k, v in state.items() if k != "layers.1.residual_group.blocks.2.mlp.fc1.bias"}, "missing", "layers.1.blocks.2.mlp.fc1.bias")
    refused({k: v for k, v in state.items() if k != table}, "relative_position_bias_table")
    refused({k: v for k, v in state.items() if k != "conv_last.bias"}, "conv_last.bias")
    refused(state | {"absolute_pos_embed": torch.zeros(1, 64, 24)}, "no place in a SwinIR", "absolute_pos_embed")
    refused(state | {table: torch.zeros(224, 2)}, "(2 w - 1)^2", "224")
    refused(state | {table: torch.zeros(225, 5)}, "24 features", "5 heads")
    refused(state | {"conv_first.weight": torch.zeros(24, 1, 3, 3)}, "conv_first.weight", "3 input channels, got 1")
    refused(state | {"upsample.0.weight": torch.zeros(63, 16, 3, 3)}, "upsample.0.weight", "63")
    refused(state | {"norm.weight": torch.full((24,), float("nan"))}, "norm.weight", "not finite")
    assert "an upscaler (SwinIR)" in rocm_sd("inspect", written(tmp_path / "net.safetensors", state)).stdout


@pytest.mark.parametrize("tile, overlap", [(16, 8), (40, 16)])
def test_windows_of_swinir(upscale, tmp_path, tile, overlap):
    """Tiles hold whole windows: inside of them, where a pixel sees no border, the picture is the one without tiles."""
    net = randomised(SwinIr(depths=(1,)))  # one block, which shifts nothing: pixels see their window, and two behind convolutions
    path, pixels = written(tmp_path / "net.safetensors", net.state_dict()), picture(88, 72)
    got = upscale(path, pixels, "--tile", tile, "--tile-overlap", overlap)
    whole = upscale(path, pixels, "--tile", 0)
    assert got.shape == whole.shape and psnr(got.astype(float), whole.astype(float)) > 35
    far = randomised(SwinIr(depths=(2, 2)))
    path = written(tmp_path / "far.safetensors", far.state_dict())
    assert psnr(upscale(path, pixels, "--tile", 48, "--tile-overlap", 24).astype(float), enlarged(far, pixels)) > 30


@pytest.mark.parametrize("name", ["x2", "compact x4", "span x2", "swinir x2"])
def test_emulated_gpu(rocm_sd, tmp_path, name):
    if "emu:gfx1100" not in rocm_sd("devices").stdout:
        pytest.skip("built without kernels for gfx1100")
    made = {"x2": lambda: RrdbNet(unshuffle=2, blocks=1), "compact x4": lambda: CompactNet(convolutions=1), "span x2": lambda: SpanNet(factor=2),
            "swinir x2": lambda: SwinIr(depths=(2,))}
    net = randomised(made[name]())
    path, pixels = written(tmp_path / "net.safetensors", net.state_dict()), picture(14, 11)
    Image.fromarray(pixels).save(tmp_path / "in.png")
    rocm_sd("upscale", tmp_path / "in.png", "--upscaler", path, "--device", "emu:gfx1100", "-o", tmp_path / "out.png")
    assert psnr(read_picture(tmp_path / "out.png").astype(float), enlarged(net, pixels)) > 45


@pytest.mark.in_python
def test_python(upscale, build_dir, tmp_path):
    """The Python class, which goes through the C interface: the command line's pixels; progress, cancelling, errors."""
    os.environ["ROCM_SD_LIBRARY"] = str(build_dir / "librocm_sd.so")
    load_package(build_dir)
    from rocm_sd_ops import Upscaler
    from rocm_sd_ops.engine import Cancelled, EngineError

    net = randomised(RrdbNet(unshuffle=2))
    path, pixels = written(tmp_path / "net.pth", net.state_dict(), "params_ema"), picture(61, 33)
    windows: list = []
    with Upscaler(path, device="cpu") as made:
        got = made(pixels, tile=32, tile_overlap=16, output_type="np", callback=lambda *a: windows.append(a[:3]))
        assert np.array_equal(got, upscale(path, pixels, "--tile", 32, "--tile-overlap", 16))
        assert windows[0] == ("upscale", 1, 6) and windows[-1] == ("upscale", 6, 6)
        assert made(Image.fromarray(pixels), factor=1.5).size == (91, 49)
        assert np.asarray(made(torch.from_numpy(pixels), width=122, output_type="pt")).shape == (66, 122, 3)
        with pytest.raises(Cancelled):
            made(pixels, callback=lambda *_: True)
        with pytest.raises(ZeroDivisionError):
            made(pixels, callback=lambda *_: 1 / 0)
        with pytest.raises(EngineError, match="tile-overlap"):
            made(pixels, tile=32, tile_overlap=20)
    with pytest.raises(EngineError, match="closed"):
        made(pixels)
    with pytest.raises(EngineError, match="no such file"):
        Upscaler(tmp_path / "none.pth")
