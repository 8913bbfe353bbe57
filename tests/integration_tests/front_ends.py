"""What the tests of ComfyUI's nodes and of AUTOMATIC1111's extension share: stand-ins for layers and models of the ldm family, and
attention in float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def exact(q, k, v, mask=None, scale=None):
    """On [B,H,N,D], in float64."""
    scores = q.double() @ k.double().transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask.double()
    return scores.softmax(-1).nan_to_num(0) @ v.double()


class AttnBlock(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = torch.nn.GroupNorm(4, c)
        self.q, self.k, self.v, self.proj_out = (torch.nn.Conv2d(c, c, 1) for _ in range(4))
        self.optimized_attention = lambda q, k, v: F.scaled_dot_product_attention(
            *(x.flatten(2).transpose(1, 2) for x in (q, k, v))).transpose(1, 2).reshape(q.shape)

    def forward(self, x):
        y = self.norm(x)
        return x + self.proj_out(self.optimized_attention(self.q(y), self.k(y), self.v(y)))


class Tree(torch.nn.Module):
    """A UNet of the ldm family as far as its names: parameters from a checkpoint, a forward of our choosing."""

    def __init__(self, state, forward):
        super().__init__()
        self.run = forward
        for name, value in state.items():
            *path, leaf = name.split(".")
            at = self
            for part in path:
                if part not in at._modules:
                    at.add_module(part, torch.nn.Module())
                at = at._modules[part]
            at.register_parameter(leaf, torch.nn.Parameter(value, requires_grad=False))

    def forward(self, x, timesteps, context, y=None, **kwargs):
        return self.run(x, timesteps, context)


Tree.__module__ = "ldm.modules.standin"


def ldm_unet(tiny_model, kind="sd15"):
    """(the model under ldm's names, which counts the calls of its own forward; those calls; Diffusers' model)."""
    from diffusers import UNet2DConditionModel
    from safetensors.torch import load_file

    head = "model.diffusion_model."
    state = {k.removeprefix(head): v for k, v in load_file(tiny_model(kind, "single")).items() if k.startswith(head)}
    unet = UNet2DConditionModel.from_pretrained(tiny_model(kind), subfolder="unet").eval()
    calls: list = []

    def forward(x, timesteps, context):
        calls.append(1)
        return unet(x, timesteps, context).sample

    return Tree(state, forward), calls, unet
