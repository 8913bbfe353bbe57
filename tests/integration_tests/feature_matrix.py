"""Combinations of features for test_feature_matrix.py: drawn from a seed so that every pair of levels comes up."""

from __future__ import annotations

import itertools
import random
from dataclasses import asdict, dataclass, fields, replace

LEVELS: dict[str, tuple[str, ...]] = {
    "model": ("sd15", "sd21v", "sdxl", "refined"),  # refined: SDXL's base up to 0.6 of the way, then the refiner
    "lora": ("none", "unet", "whole", "two"),       # whole: text encoders, too
    "applied": ("merged", "runtime", "blocks"),     # blocks: merged with weights of blocks
    "control": ("none", "net", "adapter", "both", "union"),  # ControlNet, T2I-Adapter
    "ip": ("none", "plain", "plus"),                # IP-Adapter
    "guidance": ("prompt", "regions", "attention"),  # regions with prompts of their own; self-attention guidance
    "start": ("noise", "image", "mask"),
    "batch": ("1", "2"),
    "memory": ("resident", "offload"),
    "weights": ("plain", "int8"),
    "device": ("cpu", "emulated"),
}
# What makes a picture another one, and the level without it.
FEATURES = {"lora": "none", "control": "none", "ip": "none", "guidance": "prompt"}
# Of union ControlNets Diffusers has pipelines for SDXL alone.
IMPOSSIBLE = {(("model", "sd15"), ("control", "union")), (("model", "sd21v"), ("control", "union"))}


@dataclass(frozen=True)
class Case:
    model: str
    lora: str
    applied: str
    control: str
    ip: str
    guidance: str
    start: str
    batch: str
    memory: str
    weights: str
    device: str

    def name(self) -> str:
        return "-".join(value for value in asdict(self).values())

    def is_exact(self) -> bool:
        """Whether it computes in f32 with the weights as they are."""
        return self.weights == "plain" and self.device == "cpu"

    def drawn(self) -> Case:
        """What decides the picture: the case without how it is computed."""
        applied = self.applied if self.applied == "blocks" and self.lora != "none" else "merged"
        return replace(self, applied=applied, memory="resident", weights="plain", device="cpu")

    def without_each(self) -> list[Case]:
        """The drawn cases that lack one of its features."""
        return [replace(self, **{name: plain}).drawn() for name, plain in FEATURES.items() if getattr(self, name) != plain]


def pairs_of(case: Case) -> set[tuple]:
    items = [(field.name, getattr(case, field.name)) for field in fields(case)]
    return set(itertools.combinations(items, 2))


def every_pair() -> set[tuple]:
    return {((a, x), (b, y)) for a, b in itertools.combinations(LEVELS, 2) for x in LEVELS[a] for y in LEVELS[b]} - IMPOSSIBLE


def draw_cases(count: int, seed: int, candidates: int = 40) -> list[Case]:
    """Different cases: as long as a pair is missing the one of several random cases that brings most, then any."""
    rng, missing, cases = random.Random(seed), every_pair(), []
    while len(cases) < count:
        drawn = [Case(*(rng.choice(levels) for levels in LEVELS.values())) for _ in range(candidates)]
        drawn = [case for case in drawn if not pairs_of(case) & IMPOSSIBLE]
        best = max(drawn, key=lambda case: len(pairs_of(case) & missing)) if missing else drawn[0]
        if best not in cases:
            cases.append(best)
            missing -= pairs_of(best)
    return cases
