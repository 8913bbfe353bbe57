"""What both training stages share: the learning-rate course, the averaged weights and resumable checkpoints."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch

WARMUP_STEPS = 300
DECAY_FROM = 0.65  # fraction of the course after which the learning rate falls to zero


@dataclass
class Course:
    """Progress from 0 to 1 over `steps` or `minutes` of training, whichever ends first; a session may stop earlier."""

    steps: int
    minutes: float
    session_minutes: float
    step: int = 0
    seconds: float = 0.0

    def start(self) -> None:
        self.first_step = self.step
        self.session_start = time.monotonic()
        self.last_tick = self.session_start

    def advance(self) -> None:
        """Counts one step. The first step of a session compiles kernels, so its time is not counted."""
        now = time.monotonic()
        if self.step > self.first_step:
            self.seconds += now - self.last_tick
        self.last_tick = now
        self.step += 1

    @property
    def progress(self) -> float:
        return min(1.0, max(self.step / self.steps, self.seconds / 60 / self.minutes))

    @property
    def finished(self) -> bool:
        return self.progress >= 1 or time.monotonic() - self.session_start > 60 * self.session_minutes

    def learning_rate(self, peak: float) -> float:
        """Warm-up (again after a resume, whose optimiser starts fresh), constant, then linear to zero."""
        warmup = min(1.0, (self.step - self.first_step + 1) / WARMUP_STEPS)
        return peak * warmup * min(1.0, (1 - self.progress) / (1 - DECAY_FROM))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"step": self.step, "seconds": round(self.seconds, 1)}) + "\n")

    def resume(self, path: Path) -> bool:
        if not path.exists():
            return False
        state = json.loads(path.read_text())
        self.step, self.seconds = state["step"], state["seconds"]
        return True


class AveragedWeights:
    """Exponential moving average of several modules' parameters, in float."""

    def __init__(self, modules: list[torch.nn.Module], decay: float):
        self.live = [parameter for module in modules for parameter in module.parameters()]
        self.copies = [copy.deepcopy(module).requires_grad_(False) for module in modules]
        self.averages = [parameter for module in self.copies for parameter in module.parameters()]
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self.averages, self.live, 1 - decay)


def save_half(module: torch.nn.Module, folder: Path) -> None:
    """Writes the module as a Diffusers or transformers folder in fp16."""
    copy.deepcopy(module).to(torch.float16).save_pretrained(folder, safe_serialization=True)


def make_optimiser(modules: list[torch.nn.Module], peak: float) -> torch.optim.Optimizer:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    fused = parameters[0].is_cuda
    return torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.99), weight_decay=0.01, fused=fused)
