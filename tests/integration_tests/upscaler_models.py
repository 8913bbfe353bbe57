"""Upscaling networks in PyTorch from their papers' descriptions (Wang et al., "ESRGAN", 2018, sections 3.1 and 4.1; "Real-ESRGAN", 2021,
section 3.3; SRVGGNetCompact: convolutions with PReLU, pixels shuffled, the enlarged image added; Wan et al., "Swift Parameter-free
Attention Network", 2023, sections 3.1 to 3.3; Liang et al., "SwinIR", 2021, section 3, and Liu et al., "Swin Transformer", 2021, sections 3.2
and 3.3), with random weights, and the files that people have of them."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Dense(nn.Module):
    def __init__(self, features: int, growth: int) -> None:
        super().__init__()
        for k in range(1, 6):
            setattr(self, f"conv{k}", nn.Conv2d(features + (k - 1) * growth, growth if k < 5 else features, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = [x]
        for k in range(1, 5):
            seen.append(F.leaky_relu(getattr(self, f"conv{k}")(torch.cat(seen, 1)), 0.2))
        return x + 0.2 * self.conv5(torch.cat(seen, 1))


class Rrdb(nn.Module):
    def __init__(self, features: int, growth: int) -> None:
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = (Dense(features, growth) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.2 * self.rdb3(self.rdb2(self.rdb1(x)))


class RrdbNet(nn.Module):
    def __init__(self, unshuffle: int = 1, features: int = 16, growth: int = 8, blocks: int = 2, doublings: int = 2) -> None:
        super().__init__()
        self.unshuffle, self.doublings = unshuffle, doublings
        self.conv_first = nn.Conv2d(3 * unshuffle**2, features, 3, 1, 1)
        self.body = nn.Sequential(*(Rrdb(features, growth) for _ in range(blocks)))
        self.conv_body = nn.Conv2d(features, features, 3, 1, 1)
        for k in range(1, doublings + 1):
            setattr(self, f"conv_up{k}", nn.Conv2d(features, features, 3, 1, 1))
        self.conv_hr = nn.Conv2d(features, features, 3, 1, 1)
        self.conv_last = nn.Conv2d(features, 3, 3, 1, 1)

    @property
    def factor(self) -> int:
        return 2**self.doublings // self.unshuffle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        x = F.pad(x, (0, -width % self.unshuffle, 0, -height % self.unshuffle), "reflect")
        features = self.conv_first(F.pixel_unshuffle(x, self.unshuffle))
        h = features + self.conv_body(self.body(features))
        for k in range(1, self.doublings + 1):
            h = F.leaky_relu(getattr(self, f"conv_up{k}")(F.interpolate(h, scale_factor=2, mode="nearest")), 0.2)
        h = self.conv_last(F.leaky_relu(self.conv_hr(h), 0.2))
        return h[..., :height * self.factor, :width * self.factor]


class CompactNet(nn.Module):
    def __init__(self, factor: int = 4, features: int = 16, convolutions: int = 3) -> None:
        super().__init__()
        self.factor = factor
        layers: list[nn.Module] = [nn.Conv2d(3, features, 3, 1, 1), nn.PReLU(features)]
        for _ in range(convolutions):
            layers += [nn.Conv2d(features, features, 3, 1, 1), nn.PReLU(features)]
        self.body = nn.ModuleList([*layers, nn.Conv2d(features, 3 * factor**2, 3, 1, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x
        for layer in self.body:
            h = layer(h)
        return F.pixel_shuffle(h, self.factor) + F.interpolate(x, scale_factor=self.factor, mode="nearest")


class SpanConv(nn.Module):
    """A 3x3 convolution as SPAN trains it: three convolutions behind each other on the image with zeros around it, one beside them. What a
    file holds under eval_conv is not read where these are there."""

    def __init__(self, inputs: int, outputs: int, gain: int = 2) -> None:
        super().__init__()
        self.sk = nn.Conv2d(inputs, outputs, 1)
        self.conv = nn.Sequential(nn.Conv2d(inputs, inputs * gain, 1), nn.Conv2d(inputs * gain, outputs * gain, 3), nn.Conv2d(outputs * gain, outputs, 1))
        self.eval_conv = nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x, (1, 1, 1, 1))) + self.sk(x)

    @torch.no_grad()
    def as_one(self) -> dict[str, torch.Tensor]:
        """The filter and bias of one convolution, read off from what becomes of single pixels."""
        channels = self.sk.in_channels
        bias = self(torch.zeros(1, channels, 5, 5))[0, :, 2, 2]
        pixels = torch.zeros(channels, channels, 5, 5)
        pixels[range(channels), range(channels), 2, 2] = 1
        seen = self(pixels) - bias[None, :, None, None]
        return {"weight": seen[:, :, 1:4, 1:4].flip(2, 3).permute(1, 0, 2, 3).contiguous(), "bias": bias}


class SpanBlock(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.c1_r, self.c2_r, self.c3_r = (SpanConv(features, features) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = F.silu(self.c1_r(x))
        v = self.c3_r(F.silu(self.c2_r(inner)))
        return (v + x) * (torch.sigmoid(v) - 0.5), inner


class SpanNet(nn.Module):
    def __init__(self, factor: int = 4, features: int = 16, normalised: bool = True) -> None:
        super().__init__()
        self.factor, self.normalised = factor, normalised
        if not normalised:
            self.register_buffer("no_norm", torch.zeros(1))
        self.conv_1, self.conv_2 = SpanConv(3, features), SpanConv(features, features)
        for k in range(1, 7):
            setattr(self, f"block_{k}", SpanBlock(features))
        self.conv_cat = nn.Conv2d(4 * features, features, 1)
        self.upsampler = nn.Sequential(nn.Conv2d(features, 3 * factor**2, 3, 1, 1), nn.PixelShuffle(factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.normalised:
            x = (x - torch.tensor([0.4488, 0.4371, 0.4040], dtype=x.dtype)[None, :, None, None]) * 255
        features = self.conv_1(x)
        h, inner = features, None
        results = []
        for k in range(1, 7):
            h, inner = getattr(self, f"block_{k}")(h)
            results.append(h)
        return self.upsampler(self.conv_cat(torch.cat([features, self.conv_2(h), results[0], inner], 1)))

    def merged(self) -> dict[str, torch.Tensor]:
        """The file of a network whose convolutions were made one each."""
        kept = {name: value for name, value in self.state_dict().items() if not any(part in name for part in (".sk.", ".conv.", ".eval_conv."))}
        return kept | {f"{name}.eval_conv.{leaf}": value for name, layer in self.named_modules() if isinstance(layer, SpanConv) for leaf, value in layer.as_one().items()}


def random_span(net: SpanNet, seed: int = 0) -> SpanNet:
    """Weights of unit gain, behind a first convolution that takes the range of the pixels out; the last one makes colours around the middle
    of any picture's features."""
    generator = torch.Generator().manual_seed(seed)
    for value in net.parameters():
        value.data = torch.randn(value.shape, generator=generator) * (value[0].numel() ** -0.5 if value.ndim == 4 else 0.2)
    with torch.no_grad():
        for layer in (net.conv_1.sk, net.conv_1.conv[2]):
            layer.weight *= 0.02 if net.normalised else 1.0
        out = net(torch.rand(1, 3, 24, 24, generator=generator))
        last = net.upsampler[0]
        last.weight *= 0.15 / out.std()
        last.bias.copy_(0.5 - 0.15 / out.std() * (out.mean() - last.bias.mean()))
    return net.eval()


class SwinAttention(nn.Module):
    """Attention inside windows: pixels of one window see each other, with a bias for each head and relative position. In a map that was rolled,
    those see each other less by 100 that lay on different sides of its border."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij"), -1).reshape(-1, 2)
        apart = places[:, None] - places[None] + window - 1
        self.register_buffer("relative_position_index", apart[..., 0] * (2 * window - 1) + apart[..., 1])

    def forward(self, x: torch.Tensor, shift: int) -> torch.Tensor:
        _, height, width, channels = x.shape
        w = self.window
        sides = torch.zeros(height, width, dtype=torch.long)
        if shift:
            x = torch.roll(x, (-shift, -shift), (1, 2))
            rows, cols = torch.zeros(height, dtype=torch.long), torch.zeros(width, dtype=torch.long)
            rows[-shift:], cols[-shift:] = 1, 1
            sides = 2 * rows[:, None] + cols[None]

        def cut(m: torch.Tensor) -> torch.Tensor:
            return m.reshape(height // w, w, width // w, w, -1).transpose(1, 2).reshape(-1, w * w, m.shape[-1])

        windows, border = cut(x[0]), cut(sides[..., None])[..., 0]
        q, k, v = self.qkv(windows).reshape(-1, w * w, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (channels // self.heads) ** -0.5
        scores = scores + self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        scores = scores - 100.0 * (border[:, None, :, None] != border[:, None, None, :])
        y = self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, w * w, channels))
        y = y.reshape(height // w, width // w, w, w, channels).transpose(1, 2).reshape(1, height, width, channels)
        return torch.roll(y, (shift, shift), (1, 2))


class SwinBlock(nn.Module):
    def __init__(self, width: int, heads: int, window: int, hidden: int, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SwinAttention(width, heads, window)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, hidden), "fc2": nn.Linear(hidden, width)})
        if shift:
            self.register_buffer("attn_mask", torch.zeros(4, window**2, window**2))  # of the size that it was trained at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), self.shift)
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))


def swin_conv(width: int, three: bool) -> nn.Module:
    if not three:
        return nn.Conv2d(width, width, 3, 1, 1)
    return nn.Sequential(nn.Conv2d(width, width // 4, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(width // 4, width // 4, 1), nn.LeakyReLU(0.2),
                         nn.Conv2d(width // 4, width, 3, 1, 1))


class SwinGroup(nn.Module):
    def __init__(self, width: int, heads: int, window: int, hidden: int, depth: int, three: bool) -> None:
        super().__init__()
        self.residual_group = nn.ModuleDict({"blocks": nn.ModuleList(SwinBlock(width, heads, window, hidden, window // 2 * (i % 2)) for i in range(depth))})
        self.conv = swin_conv(width, three)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x
        for block in self.residual_group["blocks"]:
            h = block(h)
        return x + self.conv(h.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class SwinIr(nn.Module):
    def __init__(self, upsampler: str = "pixelshuffle", factor: int = 2, width: int = 24, heads: int = 2, window: int = 8, depths: tuple = (2, 3),
                 three: bool = False, features: int = 16, embed_norm: bool = True) -> None:
        super().__init__()
        self.upsampler, self.factor, self.window, self.jpeg = upsampler, factor, window, window == 7
        self.conv_first = nn.Conv2d(3, width, 3, 1, 1)
        if embed_norm:
            self.patch_embed = nn.ModuleDict({"norm": nn.LayerNorm(width)})
        self.layers = nn.ModuleList(SwinGroup(width, heads, window, 2 * width, depth, three) for depth in depths)
        self.norm = nn.LayerNorm(width)
        self.conv_after_body = swin_conv(width, three)
        doublings = factor.bit_length() - 1
        if upsampler in ("pixelshuffle", "nearest+conv"):
            self.conv_before_upsample = nn.Sequential(nn.Conv2d(width, features, 3, 1, 1), nn.LeakyReLU(0.01))
        if upsampler == "pixelshuffle":
            squares = [3] if factor == 3 else [2] * doublings
            self.upsample = nn.Sequential(*(m for s in squares for m in (nn.Conv2d(features, s * s * features, 3, 1, 1), nn.PixelShuffle(s))))
        elif upsampler == "nearest+conv":
            for k in range(1, doublings + 1):
                setattr(self, f"conv_up{k}", nn.Conv2d(features, features, 3, 1, 1))
            self.conv_hr = nn.Conv2d(features, features, 3, 1, 1)
        elif upsampler == "pixelshuffledirect":
            self.upsample = nn.Sequential(nn.Conv2d(width, 3 * factor**2, 3, 1, 1), nn.PixelShuffle(factor))
        if upsampler != "pixelshuffledirect":
            self.conv_last = nn.Conv2d(features if upsampler else width, 3, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        x = reflected(x, self.window)
        mean, span = torch.tensor([0.4488, 0.4371, 0.4040])[None, :, None, None], 255.0 if self.jpeg else 1.0
        x = (x - mean) * span
        first = self.conv_first(x)
        h = first.permute(0, 2, 3, 1)
        if hasattr(self, "patch_embed"):
            h = self.patch_embed["norm"](h)
        for layer in self.layers:
            h = layer(h)
        h = self.conv_after_body(self.norm(h).permute(0, 3, 1, 2)) + first
        if self.upsampler == "nearest+conv":
            h, k = self.conv_before_upsample(h), 1
            while hasattr(self, f"conv_up{k}"):
                h, k = F.leaky_relu(getattr(self, f"conv_up{k}")(F.interpolate(h, scale_factor=2, mode="nearest")), 0.2), k + 1
            h = self.conv_last(F.leaky_relu(self.conv_hr(h), 0.2))
        elif self.upsampler == "pixelshuffle":
            h = self.conv_last(self.upsample(self.conv_before_upsample(h)))
        else:
            h = self.upsample(h) if self.upsampler else x + self.conv_last(h)
        return (h / span + mean)[..., :height * self.factor, :width * self.factor]


def reflected(x: torch.Tensor, multiple: int) -> torch.Tensor:
    """To multiples of so many pixels; where there are too few to reflect, the first ones stand for the rest."""
    height, width = x.shape[-2:]

    def places(length: int) -> torch.Tensor:
        i = torch.arange(-(-length // multiple) * multiple)
        return torch.where(i < length, i, (2 * (length - 1) - i).clamp(min=0))

    return x[..., places(height), :][..., places(width)]


def random_swin(net: SwinIr, seed: int = 0) -> SwinIr:
    """Weights of unit gain, tables of biases that softmax sees, and a last layer that makes colours around the middle."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in net.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if name.endswith("bias_table"):
            value.data = noise
        elif value.ndim > 1:
            value.data = noise * value[0].numel() ** -0.5
        else:
            value.data = 0.1 * noise + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
    with torch.no_grad():  # so that what the network adds to the mean, or to the image, is neither faint nor clipped
        last, image = net.upsample[0] if net.upsampler == "pixelshuffledirect" else net.conv_last, torch.rand(1, 3, 24, 24, generator=generator)
        last.bias.zero_()
        made = net(image) - (0.45 if net.upsampler else image)
        last.weight *= 0.15 / made.std()
        last.bias -= 0.15 / made.std() * made.mean() * (255.0 if net.jpeg else 1.0)
    return net.eval()


def randomised(net: nn.Module, seed: int = 0) -> nn.Module:
    """Weights that keep a picture's contrast: each layer changes the result by more than its rounding, none overflows."""
    if isinstance(net, SpanNet):
        return random_span(net, seed)
    if isinstance(net, SwinIr):
        return random_swin(net, seed)
    generator = torch.Generator().manual_seed(seed)
    for name, value in net.named_parameters():
        fan = value[0].numel() if value.ndim == 4 else 1
        scale = fan**-0.5 * (0.2 if name.startswith(("conv_last", "body.8")) else 1.0) if value.ndim == 4 else 0.05
        value.data = torch.randn(value.shape, generator=generator) * scale
    for name, value in net.named_parameters():
        if value.ndim == 1 and "body" in name and name.endswith("weight"):
            value.data = torch.rand(value.shape, generator=generator)  # slopes
        if name == "conv_last.bias":
            value.data += 0.5
    return net.eval()


@torch.no_grad()
def enlarged(net: nn.Module, pixels: np.ndarray) -> np.ndarray:
    """uint8 [H,W,3] -> float 0..255 [H*factor,W*factor,3], clamped, not rounded."""
    x = torch.from_numpy(np.array(pixels)).float().permute(2, 0, 1)[None] / 255
    if isinstance(net, SpanNet):  # whose gates make much of what float32 leaves
        net, x = copy.deepcopy(net).double(), x.double()
    return (net(x)[0].clamp(0, 1) * 255).permute(1, 2, 0).numpy()


def older_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As the files before BasicSR's names: RRDB_trunk, trunk_conv, upconv1, HRconv."""
    out = {}
    for name, value in state.items():
        name = re.sub(r"^body\.(\d+)\.rdb", r"RRDB_trunk.\1.RDB", name).replace("conv_body", "trunk_conv")
        out[name.replace("conv_up", "upconv").replace("conv_hr", "HRconv")] = value
    return out


def oldest_names(state: dict[str, torch.Tensor], blocks: int, doublings: int) -> dict[str, torch.Tensor]:
    """As one sequence: its first convolution, the trunk, an upsampling, convolution and rectifier for each doubling, two convolutions."""
    numbers = {"conv_first": "0", "conv_body": f"1.sub.{blocks}"} | {f"conv_up{k}": str(3 * k) for k in range(1, doublings + 1)}
    numbers |= {"conv_hr": str(3 * doublings + 2), "conv_last": str(3 * doublings + 4)}
    out = {}
    for name, value in state.items():
        layer, leaf = name.rsplit(".", 1)
        inner = re.sub(r"^body\.(\d+)\.rdb(\d)\.conv(\d)$", r"1.sub.\1.RDB\2.conv\3.0", layer)
        out[f"model.{numbers.get(layer, inner)}.{leaf}"] = value
    return out


def written(path: Path, state: dict[str, torch.Tensor], key: str = "") -> Path:
    """.safetensors, or torch.save of the state (under `key`)."""
    if path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file({name: value.contiguous() for name, value in state.items()}, path)
    else:
        torch.save({key: state} if key else state, path)
    return path
