#!/usr/bin/env python3
"""One model with random weights in PyTorch, in several implementations, timed on request: benchmarks/gpu_record.py starts it.

    benchmarks/torch_peer.py sd15-unet:512x512:1 --implementations eager,channels_last,optimized --reference out.pt

Prints a line of JSON for each implementation that is ready ({"ready": NAME, "seconds": preparing, "psnr": dB to eager}) or has
failed ({"failed": NAME, "why": ...}), then {"prepared": true}. Each line of input names an implementation and a number of calls,
"eager 20", and is answered by {"implementation", "waited_ms": [...], "in_turn_ms"}: calls that are waited for, by device events
(a clock on a CPU), and the time of one of as many calls without synchronisation. Ends with its input.

Works: MODEL:WIDTHxHEIGHT:IMAGES as bench_model_gpu has them (a UNet's batch is two an image), and tiny-unet for tests.
Implementations: eager, channels_last, compiled (torch.compile, reduce-overhead, channels_last), layers and optimized
(optimize_sd_model by layers, and with the engine).
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
import time
from pathlib import Path
from typing import Callable

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools" / "checkpoints"))
from model_shapes import shapes  # noqa: E402

from time_limit import time_limit  # noqa: E402
from torch_times import in_turn, waited  # noqa: E402

KINDS = {"sd15-unet": "sd15", "sd21-unet": "sd21v", "sdxl-unet": "sdxl", "tiny-unet": "sd15", "vae": "sd15", "tiny-vae": "sd15"}
IMPLEMENTATIONS = ("eager", "channels_last", "compiled", "layers", "optimized")


def parse_work(text: str) -> tuple[str, int, int, int]:
    """model, width, height, images."""
    match = re.fullmatch(r"([\w-]+):(\d+)x(\d+):(\d+)", text)
    if match is None or match[1] not in KINDS:
        raise SystemExit(f"torch_peer: expected MODEL:WIDTHxHEIGHT:IMAGES with one of {', '.join(KINDS)}, got {text}")
    return match[1], int(match[2]), int(match[3]), int(match[4])


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def make_model(work: str, device: str, dtype: torch.dtype) -> tuple[torch.nn.Module, Callable]:
    """The module, and call(module) on inputs that do not change."""
    import diffusers

    model, width, height, images = parse_work(work)
    spec = shapes(KINDS[model], tiny=model.startswith("tiny"))
    torch.manual_seed(0)
    h, w = height // 8, width // 8
    with torch.device(device):
        if model.endswith("vae"):
            module = diffusers.AutoencoderKL(**spec["vae"]).to(dtype).eval().requires_grad_(False)
            latents = torch.randn(images, 4, h, w).to(dtype)
            return module, lambda m: m.decode(latents, return_dict=False)[0]
        config = spec["unet"]
        module = diffusers.UNet2DConditionModel(**config).to(dtype).eval().requires_grad_(False)
        rows = 2 * images
        inputs = dict(sample=torch.randn(rows, 4, h, w).to(dtype), timestep=torch.tensor(500),
                      encoder_hidden_states=torch.randn(rows, 77, config["cross_attention_dim"]).to(dtype))
        if config.get("addition_embed_type") == "text_time":
            pooled = config["projection_class_embeddings_input_dim"] - 6 * config["addition_time_embed_dim"]
            inputs["added_cond_kwargs"] = dict(text_embeds=torch.randn(rows, pooled).to(dtype),
                                               time_ids=torch.full((rows, 6), 1024.0).to(dtype))
    return module, lambda m: m(**inputs, return_dict=False)[0]


class Peer:
    def __init__(self, work: str, device: str, dtype: torch.dtype):
        self.cuda = device.startswith("cuda")
        self.module, self.call = make_model(work, device, dtype)
        self.calls: dict[str, Callable] = {}
        self.modules: dict[str, torch.nn.Module] = {}
        self.vae = parse_work(work)[0].endswith("vae")

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def prepare(self, name: str) -> Callable:
        if name == "eager":
            return lambda m=self.module: self.call(m)
        module = copy.deepcopy(self.module)
        if name in ("channels_last", "compiled"):
            module.to(memory_format=torch.channels_last)
        if name == "compiled" and self.vae:
            module.decode = torch.compile(module.decode, mode="reduce-overhead")
        elif name == "compiled":
            module = torch.compile(module, mode="reduce-overhead", fullgraph=True)
        if name in ("layers", "optimized"):
            import rocm_sd_ops

            rocm_sd_ops.optimize_sd_model(module, "performance", engine=name == "optimized")
        self.modules[name] = module
        return lambda m=module: self.call(m)

    def declined(self, name: str) -> dict:
        """Why the engine left the last call to the layers, by part of the model."""
        if name != "optimized":
            return {}
        import rocm_sd_ops

        return {part: why for part, why in rocm_sd_ops.engine_reasons(self.modules[name]).items() if why}

    def psnr(self, name: str, reference: Path) -> float | None:
        got = self.calls[name]().double()
        if name == "eager":
            part = reference.with_name(f"{reference.name}.part")
            torch.save(got.cpu(), part)
            part.replace(reference)
            return None
        if not reference.is_file():
            return None
        want = torch.load(reference).to(got.device)
        error = (got - want).square().mean()
        return (10 * torch.log10((want.max() - want.min()) ** 2 / error.clamp_min(1e-300))).item()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work")
    parser.add_argument("--implementations", required=True)
    parser.add_argument("--reference", type=Path, required=True, help="file of eager's output")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="f16", choices=("f16", "bf16", "f32"))
    parser.add_argument("--seconds", type=float, default=240, help="for preparing an implementation")
    args = parser.parse_args()
    names = args.implementations.split(",")
    unknown = [name for name in names if name not in IMPLEMENTATIONS]
    if unknown:
        parser.error(f"--implementations {unknown[0]}: expected {', '.join(IMPLEMENTATIONS)}")
    with torch.no_grad():
        peer = Peer(args.work, args.device, {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[args.dtype])
        for name in names:
            begin = time.perf_counter()
            try:
                with time_limit(args.seconds):
                    peer.calls[name] = peer.prepare(name)
                    for _ in range(3):  # compiles, records, plans
                        peer.calls[name]()
                    peer.wait()
                    psnr = peer.psnr(name, args.reference)
                if declined := peer.declined(name):
                    say(note=f"optimized: the engine declined: {declined}")
                if peer.cuda:
                    torch.cuda.empty_cache()  # other models wait beside this one
                say(ready=name, seconds=time.perf_counter() - begin, psnr=psnr,
                    ms=waited(peer.calls[name], 1, peer.cuda)[0])
            except Exception as error:  # noqa: BLE001 (the others are still worth their time)
                peer.calls.pop(name, None)
                lines = str(error).strip().splitlines()
                say(failed=name, why=f"{type(error).__name__}: {lines[0][:200] if lines else ''}")
        say(prepared=True)
        for line in sys.stdin:
            name, _, count = line.strip().partition(" ")
            if name not in peer.calls:
                say(failed=name, why="not prepared")
                continue
            try:
                call = peer.calls[name]
                waited(call, 3, peer.cuda)
                say(implementation=name, waited_ms=waited(call, int(count), peer.cuda), in_turn_ms=in_turn(call, int(count), peer.cuda))
            except Exception as error:  # noqa: BLE001
                say(failed=name, why=f"{type(error).__name__}: {error}"[:300])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
