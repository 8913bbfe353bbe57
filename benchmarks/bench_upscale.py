#!/usr/bin/env python3
"""Upscaling networks of published sizes with random weights: ours beside PyTorch's eager and compiled form, in turns in one process.

    benchmarks/bench_upscale.py --device cuda --size 512
    benchmarks/bench_upscale.py --device cpu --size 96 --network rrdb --dtype fp32

A time is that of a picture: bytes [H,W,3] on the host to bytes on the host, by a network that is loaded, planned and compiled. PyTorch works in
channels_last; compiled is torch.compile (mode reduce-overhead on GPUs). The networks are those of tests/integration_tests/upscaler_models.py, and the
picture of their form in fp32 (SPAN: fp64) on the host, of --check-size pixels, is what the PSNR of each is counted from. Needs librocm_sd.so and PyTorch.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

import numpy as np
import torch

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "integration_tests"))
import upscaler_models as models  # noqa: E402
from engine import UpscaleEngine  # noqa: E402
from picture_quality import psnr  # noqa: E402

NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {
    "rrdb": lambda: models.RrdbNet(features=64, growth=32, blocks=23),  # Real-ESRGAN x4plus
    "compact": lambda: models.CompactNet(features=64, convolutions=32),  # realesr-general-x4v3
    "span": lambda: models.SpanNet(features=48),
    "swinir": lambda: models.SwinIr(factor=4, width=180, heads=6, depths=(6,) * 6, features=64),  # classical x4
}


def picture(size: int) -> np.ndarray:
    """Smooth shapes with noise, bytes [size,size,3]."""
    noise = np.random.default_rng(size).normal(0, 12, (size, size, 3))
    y, x = np.mgrid[0:size, 0:size] / size
    waves = np.stack([np.sin(9 * x + 4 * y), np.cos(13 * y), np.sin(7 * x * y)], -1)
    return np.clip(127 + 90 * waves + noise, 0, 255).astype(np.uint8)


class Torch:
    """One form of the network in PyTorch."""

    def __init__(self, net: torch.nn.Module, device: str, dtype: torch.dtype, compiled: bool):
        self.device, self.dtype = device, dtype
        self.net = copy.deepcopy(net).to(device, dtype).to(memory_format=torch.channels_last)
        if compiled:
            self.net = torch.compile(self.net, mode="reduce-overhead" if device != "cpu" else "default")

    @torch.no_grad()
    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(pixels).to(self.device).permute(2, 0, 1)[None].to(self.dtype) / 255
        usual = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)  # of the constants that a network makes
        try:
            with torch.device(self.device):
                made = self.net(x.contiguous(memory_format=torch.channels_last))
        finally:
            torch.set_default_dtype(usual)
        return (made[0].float().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous().cpu().numpy()


class Ours:
    def __init__(self, library: Path, file: Path, device: str, dtype: str, tile: int):
        self.upscaler, self.tile = UpscaleEngine(library, upscaler=file, device=device, dtype=dtype), tile

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        return self.upscaler(pixels, tile=self.tile)


def measure(name: str, args: argparse.Namespace) -> list[dict]:
    torch.manual_seed(1)
    net = models.randomised(NETWORKS[name]())
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[args.dtype]
    with tempfile.TemporaryDirectory() as folder:
        file = models.written(Path(folder) / f"{name}.safetensors", {key: value.half() if dtype == torch.float16 else value
                                                                     for key, value in net.state_dict().items()})
        if dtype == torch.float16:
            net = net.half().float()  # what all of them have
        forms: dict[str, Callable[[np.ndarray], np.ndarray]] = {"rocm-sd": Ours(args.library, file, args.device, args.dtype, args.tile)}
    for form in args.beside:
        forms[form] = Torch(net, args.device, dtype, form == "compiled")
    small = picture(args.check_size)
    exact = models.enlarged(net, small) if args.check_size else None
    rows, pixels = [], picture(args.size)
    for form, call in list(forms.items()):
        row = {"network": name, "form": form, "size": args.size, "dtype": args.dtype}
        try:
            if exact is not None:
                row["psnr"] = psnr(exact / 255, call(small) / 255)
            begin = time.perf_counter()
            call(pixels)
            row["first_s"] = time.perf_counter() - begin
            call(pixels)
        except Exception as error:  # noqa: BLE001 (a form that fails is told, the others go on)
            row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
            del forms[form]
        rows.append(row)
    times: dict[str, list[float]] = {form: [] for form in forms}
    for _ in range(args.rounds):
        for form, call in forms.items():
            for _ in range(args.calls):
                begin = time.perf_counter()
                call(pixels)
                times[form].append(time.perf_counter() - begin)
    for row in rows:
        if taken := times.get(row["form"]):
            row |= {"ms": 1e3 * statistics.median(taken), "least_ms": 1e3 * min(taken), "most_ms": 1e3 * max(taken)}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, default=REPOSITORY / "build" / "cpu" / "librocm_sd.so")
    parser.add_argument("--network", action="append", choices=list(NETWORKS), help="several: several times [all]")
    parser.add_argument("--device", default="cpu", help="as PyTorch names it")
    parser.add_argument("--dtype", default="fp16", choices=("fp16", "bf16", "fp32"))
    parser.add_argument("--size", type=int, default=512, help="width and height")
    parser.add_argument("--check-size", type=int, default=96, help="of the picture whose error is counted; 0: none")
    parser.add_argument("--tile", type=int, default=0, help="our windows; 0: the whole picture")
    parser.add_argument("--beside", nargs="*", default=["eager", "compiled"], choices=("eager", "compiled"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5, help="of each form in a round")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = torch.cuda.get_device_name() if args.device.startswith("cuda") else args.device
    print(f"{device}, PyTorch {torch.__version__}, {args.dtype}, {args.size} x {args.size}")
    print("| network | form | ms, median | least | most | PSNR, dB | first call, s |\n|---|---|---|---|---|---|---|")
    rows = []
    for name in args.network or NETWORKS:
        for row in measure(name, args):
            rows.append(row)
            if "failed" in row:
                print(f"| {name} | {row['form']} | {row['failed']} | | | | |", flush=True)
            else:
                print(f"| {name} | {row['form']} | {row['ms']:.2f} | {row['least_ms']:.2f} | {row['most_ms']:.2f} | {row.get('psnr', float('nan')):.1f} | "
                      f"{row['first_s']:.2f} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"device": device, "torch": torch.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
