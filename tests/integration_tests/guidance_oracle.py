"""Regions and self-attention guidance in any of Diffusers' pipelines: its UNet, and the ControlNet before it, are called more than once in a step.

Diffusers has a pipeline of its own for self-attention guidance, of Stable Diffusion's text to image alone, and none for regions.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import diffusers
import numpy as np
import torch

SPREAD = 6.0  # of the middle block's queries: the attention of small random weights is nearly flat, and its mask arbitrary


def looking(folder: Path, target: Path) -> Path:
    """A copy of the model whose middle block looks somewhere."""
    pipe = diffusers.DiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    with torch.no_grad():
        pipe.unet.mid_block.attentions[0].transformer_blocks[0].attn1.to_q.weight.mul_(SPREAD)
    pipe.save_pretrained(target)
    return target


def cells(box, height: int, width: int) -> np.ndarray:
    """Which share of each of the latents a box of shares (left, top, width, height) covers."""
    def side(begin, size, count):
        edges = np.arange(count + 1)
        return np.clip(np.minimum(edges[1:], (begin + size) * count) - np.maximum(edges[:-1], begin * count), 0, 1)
    return np.outer(side(box[1], box[3], height), side(box[0], box[2], width))


def shares_of(covers, base: float) -> list[np.ndarray]:
    """Of the whole picture's prompt, then of each region; they add up to 1."""
    total = sum(covers)
    left = 1 - (1 - base) * np.minimum(total, 1)
    return [left, *(np.where(total > 0, (1 - left) * cover / np.where(total > 0, total, 1), 0) for cover in covers)]


def _leading(value: Any, rows: int, of: int) -> Any:
    """The first rows of every tensor that has one for each of the batch."""
    if isinstance(value, torch.Tensor):
        return value[:rows] if value.dim() > 0 and len(value) == of else value
    if isinstance(value, dict):
        return {key: _leading(item, rows, of) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_leading(item, rows, of) for item in value)
    return value


def _called_again(pipe, predict: Callable) -> None:
    """pipe.unet returns predict(first, again, sample, timestep): `first` is what it predicts, again(sample, change) what it predicts for
    other latents, in as many of the first rows, with the arguments that change() returns. The ControlNet sees both."""
    unet, net = pipe.unet.forward, getattr(pipe, "controlnet", None)
    net_forward, seen = net.forward if net is not None else None, {}

    def watched(sample, timestep, *args, **kwargs):
        seen.update(kwargs=kwargs)
        return net_forward(sample, timestep, *args, **kwargs)

    def forward(sample, timestep, **kwargs):
        as_tuple = kwargs.pop("return_dict", True) is False

        def again(latents, change=lambda kwargs: kwargs):
            own = change(_leading(kwargs, len(latents), len(sample)))
            if net_forward:
                control = change(_leading(seen["kwargs"], len(latents), len(sample)))
                down, middle = net_forward(latents, timestep, **control)
                own |= dict(down_block_additional_residuals=down, mid_block_additional_residual=middle)
            return unet(latents, timestep, **own, return_dict=False)[0]

        out = predict(unet(sample, timestep, **kwargs, return_dict=False)[0], again, sample, timestep)
        return (out,) if as_tuple else SimpleNamespace(sample=out)

    pipe.unet.forward = forward
    if net_forward:
        net.forward = watched


def add_regions(pipe, texts: list[str], shares: list[np.ndarray], prompt: str, batch: int = 1) -> None:
    """What the UNet predicts for the prompt, the last of its conditions, becomes the predictions for all texts, blended."""
    encoded = []
    with torch.no_grad():
        for text in [prompt, *texts]:
            out = pipe.encode_prompt(text, device="cpu", num_images_per_prompt=1, do_classifier_free_guidance=False)
            encoded.append((out[0], out[2] if len(out) == 4 else None))
    weights = [torch.from_numpy(share).float()[None, None] for share in shares]

    def with_text(states, pooled):
        def change(kwargs):
            text = kwargs["encoder_hidden_states"].clone()
            text[-batch:] = states
            added = kwargs.get("added_cond_kwargs") or {}
            if "text_embeds" in added:
                embeds = added["text_embeds"].clone()
                embeds[-batch:] = pooled
                added = added | dict(text_embeds=embeds)
            return kwargs | dict(encoder_hidden_states=text) | (dict(added_cond_kwargs=added) if added else {})
        return change

    def predict(first, again, sample, timestep):
        blended = sum(weight * again(sample, with_text(*text))[-batch:] for text, weight in zip(encoded, weights))
        return torch.cat([first[:-batch], blended])

    _called_again(pipe, predict)


def add_self_attention(pipe, scale: float) -> None:
    """StableDiffusionSAGPipeline's step, for guidance by two conditions: what it adds to the guided prediction is added to both."""
    middle = pipe.unet.mid_block.attentions[0]
    store = inspect.getmodule(diffusers.StableDiffusionSAGPipeline).CrossAttnStoreProcessor()
    attention, sides = middle.transformer_blocks[0].attn1, {}
    attention.processor = store
    middle.register_forward_hook(lambda module, inputs, output: sides.update(map=output[0].shape[-2:]))
    mask = diffusers.StableDiffusionSAGPipeline.sag_masking

    def predict(first, again, sample, timestep):
        rows = len(sample) // 2
        sigma = pipe.scheduler.sigmas[pipe.scheduler.step_index]
        signal, noise = 1 / (1 + sigma ** 2) ** 0.5, sigma / (1 + sigma ** 2) ** 0.5  # the UNet's input: signal x0 + noise epsilon
        x, u = sample[:rows], first[:rows]
        velocity = pipe.scheduler.config.prediction_type == "v_prediction"
        clean, epsilon = (signal * x - noise * u, signal * u + noise * x) if velocity else ((x - noise * u) / signal, u)
        spread = SimpleNamespace(add_noise=lambda latents, noise, timesteps, a=signal, b=noise: a * latents + b * noise)
        own = SimpleNamespace(unet=SimpleNamespace(config=SimpleNamespace(attention_head_dim=attention.heads)), scheduler=spread)
        degraded = mask(own, clean, store.attention_probs.chunk(2)[0], sides["map"], timestep, epsilon)
        return first + scale * (u - again(degraded)).repeat(2, 1, 1, 1)

    _called_again(pipe, predict)
