"""benchmarks/picture_scores.py: FID's maths against closed forms and SciPy, the network's shape, CLIP score against transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import torch
from PIL import Image

import mlperf_harness as harness
import picture_scores as scores
from inception import Inception


def random_covariance(rng: np.random.Generator, size: int, rank: int) -> np.ndarray:
    x = rng.standard_normal((rank, size))
    return x.T @ x / rank


def test_frechet_distance_of_round_gaussians():
    """|d|^2 + n (a - b)^2 for covariances a^2 I and b^2 I."""
    n = 64
    shift = np.random.default_rng(0).standard_normal(n)
    for a, b in ((1.0, 1.0), (0.5, 3.0), (0.0, 2.0)):
        got = scores.frechet_distance(np.zeros(n), a * a * np.eye(n), shift, b * b * np.eye(n))
        assert got == pytest.approx(shift @ shift + n * (a - b) ** 2, rel=1e-12)


def test_frechet_distance_of_commuting_covariances():
    """Of one basis: the distance of the square roots of the eigenvalues."""
    rng = np.random.default_rng(1)
    basis, _ = np.linalg.qr(rng.standard_normal((40, 40)))
    a, b = rng.uniform(0, 4, 40), rng.uniform(0, 4, 40)
    got = scores.frechet_distance(np.zeros(40), (basis * a) @ basis.T, np.zeros(40), (basis * b) @ basis.T)
    assert got == pytest.approx(((np.sqrt(a) - np.sqrt(b)) ** 2).sum(), rel=1e-10)


@pytest.mark.parametrize("rank", [200, 20])
def test_frechet_distance_against_scipy(rank):
    """rank 20 of 60: singular covariances, as of fewer pictures than features."""
    rng = np.random.default_rng(2)
    a, b = random_covariance(rng, 60, rank), random_covariance(rng, 60, rank + 3)
    mean_a, mean_b = rng.standard_normal((2, 60))
    # The square root of a product of singular matrices is what SciPy finds hard: a little on the diagonal, as is usual with it.
    nudge = (0 if rank > 60 else 1e-9) * np.eye(60)
    root = scipy.linalg.sqrtm((a + nudge) @ (b + nudge))
    want = ((mean_a - mean_b) ** 2).sum() + np.trace(a + b - 2 * np.real(root))
    got = scores.frechet_distance(mean_a, a, mean_b, b)
    # The root of an eigenvalue moves by up to the root of the nudge, times 60 of them.
    assert got == pytest.approx(want, abs=1e-8 if rank > 60 else 2 * 60 * np.sqrt(1e-9 * 10))
    assert scores.frechet_distance(mean_b, b, mean_a, a) == pytest.approx(got, rel=1e-9)
    assert scores.frechet_distance(mean_a, a, mean_a, a) == pytest.approx(0, abs=1e-6 * np.trace(a))


@pytest.mark.parametrize("pictures", [5, 40, 90])
def test_distance_of_features(pictures):
    """Fewer and more pictures than features."""
    rng = np.random.default_rng(4)
    features, mean, cov = rng.standard_normal((pictures, 40)), rng.standard_normal(40), random_covariance(rng, 40, 80)
    want = scores.frechet_distance(*scores.statistics_of(features), mean, cov)
    # A zero eigenvalue's square root is that of its rounding, in 40 features.
    assert scores.distance_to(features, mean, cov) == pytest.approx(want, abs=2 * 40 * np.sqrt(1e-15 * 10))


def test_statistics():
    features = np.random.default_rng(3).standard_normal((50, 7)).astype(np.float32)
    mean, cov = scores.statistics_of(features)
    centred = features.astype(np.float64) - features.astype(np.float64).mean(axis=0)
    assert np.allclose(mean, features.mean(axis=0), atol=1e-6) and np.allclose(cov, centred.T @ centred / 49, atol=1e-12)
    with pytest.raises(scores.Refused, match="2 pictures"):
        scores.statistics_of(features[:1])


@pytest.fixture(scope="module")
def inception_file(tmp_path_factory) -> Path:
    """Random weights of the right names and shapes, with a classifier as the published file has."""
    torch.manual_seed(0)
    model = Inception().eval().requires_grad_(False)
    for name, tensor in model.state_dict().items():
        if name.endswith("conv.weight"):
            torch.nn.init.kaiming_normal_(tensor)
        elif name.endswith("running_mean"):
            tensor.normal_(0, 0.1)
    path = tmp_path_factory.mktemp("inception") / "inception.pth"
    torch.save(model.state_dict() | {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}, path)
    return path


def test_inception_is_the_published_network():
    """torchvision counts 27,161,264 parameters: 3,326,696 of an auxiliary head and 2,049,000 of the classifier are not here."""
    model = Inception().eval().requires_grad_(False)
    assert sum(p.numel() for p in model.parameters()) == 27_161_264 - 3_326_696 - 2_049_000
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    assert shapes["Conv2d_1a_3x3.conv.weight"] == (32, 3, 3, 3)
    assert shapes["Mixed_6c.branch7x7dbl_2.conv.weight"] == (160, 160, 7, 1)
    assert shapes["Mixed_7c.branch3x3dbl_3b.bn.running_var"] == (384,)
    assert shapes["Mixed_5b.branch_pool.conv.weight"] == (32, 192, 1, 1)
    maps = {}
    for name in ("Conv2d_4a_3x3", "Mixed_5d", "Mixed_6a", "Mixed_6e", "Mixed_7a", "Mixed_7c"):
        getattr(model, name).register_forward_hook(lambda _m, _x, y, name=name: maps.__setitem__(name, tuple(y.shape[1:])))
    with torch.no_grad():
        assert model(torch.zeros(1, 3, 299, 299)).shape == (1, scores.FEATURES)
    # The paper's table 1, with the maps of its network for 299 x 299.
    assert maps == {"Conv2d_4a_3x3": (192, 71, 71), "Mixed_5d": (288, 35, 35), "Mixed_6a": (768, 17, 17),
                    "Mixed_6e": (768, 17, 17), "Mixed_7a": (1280, 8, 8), "Mixed_7c": (2048, 8, 8)}


def write_pictures(folder: Path, count: int, seed: int, level: int = 255) -> list[str]:
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for i in range(count):
        Image.fromarray(rng.integers(0, level, (40, 33 + i, 3), dtype=np.uint8)).save(folder / f"id{i}.png")
    return [f"id{i}" for i in range(count)]


def test_fid_of_folders(inception_file, tmp_path):
    write_pictures(tmp_path / "a", 4, 0)
    write_pictures(tmp_path / "b", 4, 1, level=60)
    same = scores.fid(tmp_path / "a", inception_file, reference=tmp_path / "a")
    other = scores.fid(tmp_path / "b", inception_file, reference=tmp_path / "a")
    features = scores.inception_features(scores.load_inception(inception_file), scores.pictures_in(tmp_path / "a"))
    mean, cov = scores.statistics_of(features)
    assert features.shape == (4, 2048) and np.isfinite(features).all()
    assert same == {"fid": pytest.approx(0, abs=1e-6 * np.trace(cov)), "pictures": 4} and other["fid"] > 1e3 * same["fid"] + 1e-3
    np.savez(tmp_path / "a.npz", mu=mean, sigma=cov)
    kept = scores.fid(tmp_path / "b", inception_file, statistics=tmp_path / "a.npz")
    assert kept["fid"] == pytest.approx(other["fid"], rel=1e-6)


@pytest.mark.bad_input
def test_fid_refuses(inception_file, tmp_path, capsys):
    write_pictures(tmp_path / "a", 2, 0)
    (tmp_path / "none").mkdir()

    def refused(*words) -> str:
        with pytest.raises(SystemExit) as exit_:
            scores.main([str(word) for word in words])
        assert exit_.value.code == 2
        message = capsys.readouterr().err
        assert message.startswith("error: ") and message.count("\n") == 1
        return message

    assert "not shipped" in refused("fid", tmp_path / "a")
    assert "not shipped" in refused("clip", tmp_path / "a")
    assert "give one of them" in refused("fid", tmp_path / "a", "--inception", inception_file)
    assert "no pictures" in refused("fid", tmp_path / "none", "--inception", inception_file, "--reference", tmp_path / "a")
    np.savez(tmp_path / "small.npz", mu=np.zeros(3), sigma=np.eye(3))
    assert "expected mu [2048]" in refused("fid", tmp_path / "a", "--inception", inception_file, "--statistics", tmp_path / "small.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not an archive")
    assert "mu and sigma" in refused("fid", tmp_path / "a", "--inception", inception_file, "--statistics", tmp_path / "bad.npz")
    (tmp_path / "bad.pth").write_bytes(b"nothing")
    assert "no weights" in refused("fid", tmp_path / "a", "--inception", tmp_path / "bad.pth", "--reference", tmp_path / "a")
    torch.save({"a": torch.zeros(2)}, tmp_path / "other.pth")
    assert "missing" in refused("fid", tmp_path / "a", "--inception", tmp_path / "other.pth", "--reference", tmp_path / "a")
    state = torch.load(inception_file, weights_only=True) | {"Mixed_7b.branch1x1.conv.weight": torch.zeros(1, 2, 3, 4)}
    torch.save(state, tmp_path / "shape.pth")
    assert "[320, 1280, 1, 1]" in refused("fid", tmp_path / "a", "--inception", tmp_path / "shape.pth", "--reference", tmp_path / "a")


@pytest.fixture(scope="module")
def clip_folder(repository, tmp_path_factory) -> Path:
    """A tiny CLIP with random weights and the shipped vocabulary."""
    import shutil

    from transformers import CLIPConfig, CLIPModel

    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(1)
    layers = dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_hidden_layers=2)
    CLIPModel(CLIPConfig(text_config=layers | dict(vocab_size=49408, max_position_embeddings=77),
                         vision_config=layers | dict(image_size=32, patch_size=8), projection_dim=24)).save_pretrained(folder)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(repository / "share" / "vocab" / "clip" / name, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}))
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32},
        "do_resize": True, "do_center_crop": True, "do_normalize": True, "do_rescale": True, "do_convert_rgb": True,
        "resample": 3, "rescale_factor": 1 / 255, "image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]}))
    return folder


def test_clip_score_is_that_of_transformers(clip_folder, tmp_path):
    from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer

    names = write_pictures(tmp_path / "a", 5, 0)
    captions = {name: f"a picture of {i} cats, " + "very " * (100 * (i == 4)) + "large" for i, name in enumerate(names)}
    got = scores.clip_score(tmp_path / "a", clip_folder, captions, batch=2)
    model, tokenizer = CLIPModel.from_pretrained(clip_folder).eval(), CLIPTokenizer.from_pretrained(clip_folder)
    processor = CLIPImageProcessor.from_pretrained(clip_folder)
    cosines = []
    for name in names:
        pixels = processor(Image.open(tmp_path / "a" / f"{name}.png"), return_tensors="pt")["pixel_values"]
        assert np.allclose(scores.clip_pixels(tmp_path / "a" / f"{name}.png",
                                              json.loads((clip_folder / "preprocessor_config.json").read_text())),
                           pixels[0].numpy(), atol=2e-2)  # a level of the resized picture, of 255, over 0.26
        text = tokenizer(captions[name], padding="max_length", truncation=True, max_length=77, return_tensors="pt")
        with torch.no_grad():
            cosines.append(float(model(**text, pixel_values=pixels).logits_per_image / model.logit_scale.exp()))
    assert got["pictures"] == 5 and got["clip_score"] == pytest.approx(100 * np.mean(cosines), abs=0.2)
    assert np.ptp(cosines) > 0.01  # else nothing was told apart


@pytest.mark.bad_input
def test_clip_refuses(clip_folder, tmp_path):
    names = write_pictures(tmp_path / "a", 2, 0)
    with pytest.raises(scores.Refused, match="1 of 2 pictures have no caption"):
        scores.clip_score(tmp_path / "a", clip_folder, {names[0]: "a"})
    with pytest.raises(scores.Refused, match="expected a transformers folder"):
        scores.clip_score(tmp_path / "a", tmp_path, {})


def test_the_harness_asks_for_weights_before_it_draws(inception_file, clip_folder, tmp_path):
    words = ["--library", "x", "--model", "y", "--out", str(tmp_path), "--mode", "accuracy"]
    with pytest.raises(SystemExit, match="not shipped"):
        harness.check_scores(harness.parse(words))
    harness.check_scores(harness.parse([*words, "--no-scores"]))
    given = [*words, "--inception", str(inception_file), "--reference", str(tmp_path / "real"), "--clip", str(clip_folder)]
    harness.check_scores(harness.parse(given))
    with pytest.raises(SystemExit, match="transformers folder"):
        harness.check_scores(harness.parse([*given[:-1], str(tmp_path)]))
    names = write_pictures(tmp_path / "pictures", 3, 0)
    write_pictures(tmp_path / "real", 3, 0)
    found = harness.score(harness.parse(given), [(name, f"caption {name}") for name in names])
    assert found["pictures"] == 3 and abs(found["clip_score"]) <= 100 and "accepted" not in found
    assert found["fid"] < 1e-2
