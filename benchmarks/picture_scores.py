#!/usr/bin/env python3
"""FID and CLIP score of a folder of pictures, with weights that you give: none are shipped.

    benchmarks/picture_scores.py fid PICTURES --inception pt_inception.pth --statistics val2014.npz      # or --reference FOLDER
    benchmarks/picture_scores.py clip PICTURES --clip clip-vit-base-patch32 --captions captions_source.tsv

FID: Heusel, Ramsauer, Unterthiner, Nessler, Hochreiter, "GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash
Equilibrium", 2017: the Frechet distance of two Gaussians over 2048 features of Inception v3 (Szegedy, Vanhoucke, Ioffe, Shlens,
Wojna, "Rethinking the Inception Architecture", 2015) in the form of TensorFlow's 2015 network that pytorch-fid and MLPerf use:
--inception is its state dict (.pth or .safetensors), --statistics an .npz with "mu" and "sigma". CLIP score: 100 times the mean
cosine between a picture's and its caption's embedding (Hessel et al., "CLIPScore", 2021), by the model in a transformers folder.
A picture belongs to the caption of its name. Prints JSON. Exits 2 with a sentence where something is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path
from typing import Iterator

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from captions import read_captions  # noqa: E402

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}
FEATURES = 2048


class Refused(Exception):
    """A sentence for the user."""


# ---- FID ----

def statistics_of(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [D] and unbiased covariance [D,D] of features [N,D], in double."""
    if len(features) < 2:
        raise Refused(f"FID needs 2 pictures or more, got {len(features)}")
    features = features.astype(np.float64)
    return features.mean(axis=0), np.cov(features, rowvar=False)


def frechet_distance(mean_a: np.ndarray, cov_a: np.ndarray, mean_b: np.ndarray, cov_b: np.ndarray) -> float:
    """|mean_a - mean_b|^2 + tr(A + B - 2 (A B)^(1/2)), the 2-Wasserstein distance of the Gaussians, squared.

    A B has the eigenvalues of A^(1/2) B A^(1/2), which is symmetric and not negative: so no complex square root is taken, and
    covariances of fewer pictures than features, which are singular, need no small number added."""
    values, vectors = np.linalg.eigh((cov_a + cov_a.T) / 2)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    inner = root @ cov_b @ root
    cross = np.sqrt(np.clip(np.linalg.eigvalsh((inner + inner.T) / 2), 0, None)).sum()
    distance = float(np.sum((mean_a - mean_b) ** 2) + np.trace(cov_a) + np.trace(cov_b) - 2 * cross)
    return max(distance, 0.0)


def distance_to(features: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> float:
    """frechet_distance of features [N,D] to a Gaussian. Fewer pictures than features: with A = X^T X, A cov has the eigenvalues of
    X cov X^T, which is only [N,N]."""
    if len(features) >= features.shape[1]:
        return frechet_distance(*statistics_of(features), mean, cov)
    if len(features) < 2:
        raise Refused(f"FID needs 2 pictures or more, got {len(features)}")
    features = features.astype(np.float64)
    own = features.mean(axis=0)
    x = (features - own) / np.sqrt(len(features) - 1)
    inner = x @ cov @ x.T
    cross = np.sqrt(np.clip(np.linalg.eigvalsh((inner + inner.T) / 2), 0, None)).sum()
    return max(float(np.sum((own - mean) ** 2) + (x * x).sum() + np.trace(cov) - 2 * cross), 0.0)


def read_state(path: Path) -> dict:
    """Tensors by name; a pickle is read without running what it may hold."""
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(str(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 (any of the two libraries' own)
        raise Refused(f"{path}: no weights can be read from it: {str(error).splitlines()[0]}") from None
    if not isinstance(state, dict):
        raise Refused(f"{path}: expected a state dict, found {type(state).__name__}")
    return state


def load_inception(path: Path):
    """The network with the file's weights; the classifier (fc) and an auxiliary head may be there and are not used."""
    from inception import Inception

    state = read_state(path)
    model = Inception().eval().requires_grad_(False)
    wanted = model.state_dict()
    missing = [name for name in wanted if name not in state and not name.endswith("num_batches_tracked")]
    if missing:
        raise Refused(f"{path}: {len(missing)} of Inception v3's tensors are missing, {missing[0]} the first")
    for name, tensor in wanted.items():
        if name in state and tuple(state[name].shape) != tuple(tensor.shape):
            raise Refused(f"{path}: {name}: expected {list(tensor.shape)}, the file has {list(state[name].shape)}")
    model.load_state_dict({name: state.get(name, tensor) for name, tensor in wanted.items()})
    return model


def pictures_in(folder: Path) -> list[Path]:
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES) if folder.is_dir() else []
    if not paths:
        raise Refused(f"{folder}: no pictures")
    return paths


def batches(items: list, size: int) -> Iterator[list]:
    for begin in range(0, len(items), size):
        yield items[begin:begin + size]


def inception_features(model, paths: list[Path], device: str = "cpu", batch: int = 16) -> np.ndarray:
    """[N,2048]; pictures are brought to 299 x 299 bilinearly, without smoothing, as pytorch-fid does."""
    import torch
    from PIL import Image
    from torch.nn import functional as F

    model = model.to(device)
    features = []
    for group in batches(paths, batch):
        resized = []
        for path in group:  # of any size each
            pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB"))).to(device).permute(2, 0, 1)[None].float() / 255
            resized.append(F.interpolate(pixels, size=(299, 299), mode="bilinear", align_corners=False))
        with torch.no_grad():
            features.append(model(2 * torch.cat(resized) - 1).double().cpu().numpy())
    return np.concatenate(features)


def read_statistics(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            mean, cov = file["mu"], file["sigma"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise Refused(f"{path}: expected an .npz with mu and sigma: {error}") from None
    if mean.shape != (FEATURES,) or cov.shape != (FEATURES, FEATURES):
        raise Refused(f"{path}: expected mu [{FEATURES}] and sigma [{FEATURES},{FEATURES}], found {list(mean.shape)}, {list(cov.shape)}")
    return mean.astype(np.float64), cov.astype(np.float64)


def fid(pictures: Path, inception: Path, statistics: Path | None = None, reference: Path | None = None,
        device: str = "cpu") -> dict:
    if (statistics is None) == (reference is None):
        raise Refused("FID compares with --statistics or with --reference: give one of them")
    want = read_statistics(statistics) if statistics else None
    model = load_inception(inception)
    paths = pictures_in(pictures)
    if reference:
        want = statistics_of(inception_features(model, pictures_in(reference), device))
    return {"fid": distance_to(inception_features(model, paths, device), *want), "pictures": len(paths)}


# ---- CLIP score ----

def clip_pixels(path: Path, config: dict) -> np.ndarray:
    """[3,S,S] as a CLIP folder's preprocessor_config.json asks: shorter side to size, cut from the middle, normalised."""
    from PIL import Image

    size, crop = config.get("size", 224), config.get("crop_size", 224)
    short = size.get("shortest_edge") or size.get("height") if isinstance(size, dict) else size
    side = crop["height"] if isinstance(crop, dict) else crop
    with Image.open(path) as image:
        image = image.convert("RGB")
        scale = short / min(image.size)
        width, height = (short if e == min(image.size) else int(e * scale) for e in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - side) // 2, (height - side) // 2
    pixels = np.asarray(image.crop((left, top, left + side, top + side)), np.float64) / 255
    mean = config.get("image_mean", [0.48145466, 0.4578275, 0.40821073])
    deviation = config.get("image_std", [0.26862954, 0.26130258, 0.27577711])
    return ((pixels - mean) / deviation).transpose(2, 0, 1).astype(np.float32)


def clip_score(pictures: Path, clip: Path, captions: dict[str, str], device: str = "cpu", batch: int = 16) -> dict:
    """captions: by a picture's name without its suffix. Longer ones are cut to the model's length."""
    import torch

    for name in ("config.json", "preprocessor_config.json", "tokenizer_config.json"):
        if not (clip / name).is_file():
            raise Refused(f"{clip}: expected a transformers folder of a CLIP model, {name} is not there")
    from transformers import AutoTokenizer, CLIPModel

    try:
        model = CLIPModel.from_pretrained(clip, local_files_only=True).to(device).eval()
        tokenizer = AutoTokenizer.from_pretrained(clip, local_files_only=True)
        config = json.loads((clip / "preprocessor_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{clip}: {str(error).splitlines()[0]}") from None
    paths = pictures_in(pictures)
    unknown = [path.name for path in paths if path.stem not in captions]
    if unknown:
        raise Refused(f"{len(unknown)} of {len(paths)} pictures have no caption, {unknown[0]} the first")
    length = model.config.text_config.max_position_embeddings
    cosines: list[float] = []
    for group in batches(paths, batch):
        pixels = torch.from_numpy(np.stack([clip_pixels(path, config) for path in group])).to(device)
        text = tokenizer([captions[path.stem] for path in group], padding="max_length", truncation=True, max_length=length,
                         return_tensors="pt").to(device)
        with torch.no_grad():
            out = model(input_ids=text["input_ids"], attention_mask=text["attention_mask"], pixel_values=pixels)
        a, b = out.image_embeds.double(), out.text_embeds.double()
        cosines += ((a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))).tolist()
    return {"clip_score": 100 * float(np.mean(cosines)), "pictures": len(paths)}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("score", choices=("fid", "clip"))
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--inception", type=Path)
    parser.add_argument("--statistics", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--clip", type=Path)
    parser.add_argument("--captions", type=Path)
    parser.add_argument("--device", default="cpu", help="PyTorch's name")
    args = parser.parse_args(argv)
    try:
        if args.score == "fid":
            if not args.inception:
                raise Refused("FID needs Inception v3's weights, which are not shipped: --inception FILE")
            print(json.dumps(fid(args.pictures, args.inception, args.statistics, args.reference, args.device)))
        else:
            if not args.clip or not args.captions:
                raise Refused("the CLIP score needs a CLIP model, which is not shipped, and the captions: --clip FOLDER --captions FILE")
            print(json.dumps(clip_score(args.pictures, args.clip, dict(read_captions(args.captions)), args.device)))
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
